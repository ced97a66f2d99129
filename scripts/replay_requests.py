"""Replay recorded requests through the emulator's checker: python scripts/replay_requests.py FILE…

Each row of a file is one HTTP exchange (see shared/data/README.md for the form). What the real server accepted must be
accepted, and what it refused for a reason that the request itself shows must be refused with the same code. Where a
row cannot say whether we are right, a rule of RULES says why; rules are about kinds of rows, never about one row.
Prints how many rows each rule covered, each failing row with its reason, and the counts last on one line.
Exits 1 if a row fails.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from row_files import Tally, lines_of

from midspan.emulator.answering.route import Route, route_of
from midspan.emulator.checking import Target, check
from midspan.emulator.families import exists
from midspan.emulator.reading.read import Dialect, read
from midspan.emulator.refusal import Refusal
from midspan.providers.gemini.wire import CachedContent, CountTokensRequest

Row = dict[str, Any]

RULES = {
    "no request recorded": "the recording holds only the response",
    "another API": "an exchange of the Interactions API, or of an endpoint that the emulator does not have",
    "model of the answer": "the recording lost the model's name, or has an alias for it; the answer names the model",
    "model unknown": "the recording lost the model's name and the answer does not say it; any family may have answered",
    "base64 cut": "the recording cut long base64 and the cut piece cannot be decoded; nothing else is wrong",
    "text masked": "the recording replaced a text or its base64 by a word, so what was sent does not show",
    "made up": "the exchange was written by hand for a test; what a mock accepts says nothing of the real server",
    "quota": "the server refused for what the caller had used before",
    "credentials": "the server refused the caller, whose credentials are not recorded",
    "world": "the server refused for something outside that it could not fetch, or failed itself",
    "place": "the server refused for where the caller was or what his project had switched on",
}
METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_QUOTA = re.compile(r"quota|resource.*exhausted|rate.?limit", re.IGNORECASE)
_CREDENTIALS = re.compile(r"unregistered callers|API key|credential|permission|IAM", re.IGNORECASE)
_WORLD = re.compile(
    r"cannot fetch content|URL_|not accessible|robots|unable to process input image|file .*not found", re.IGNORECASE
)
_PLACE = re.compile(r"location is not supported|has not been used in project|billing", re.IGNORECASE)
_MASKED = re.compile(r'"(<[A-Za-z_ -]+>|REDACTED|\[[A-Z_ ]+\])"')


class Failure(Exception):
    """A row on which the emulator and the real server disagree."""


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    tally = Tally()
    for name in files:
        replay(Path(name), tally)
    for name, count in tally.kinds.most_common():
        print(f"rule {name}: {count} ({RULES[name]})")
    counted = " ".join(f"{name}={tally.counts[name]}" for name in ("rows", "accepted", "refused"))
    print(f"{counted} failures={tally.failed} by_rule={sum(tally.kinds.values())}")
    return 1 if tally.failed else 0


def replay(file: Path, tally: Tally) -> None:
    for place, line in lines_of(file, tally.fail):
        replay_line(line, place, tally)


def replay_line(line: bytes, place: str, tally: Tally) -> None:
    tally.counts["rows"] += 1
    try:
        row = json.loads(line)
        rules, verdict = judged(row)
    except Failure as failure:
        tally.fail(f"{place}: {failure}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        tally.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")
    else:
        tally.kinds.update(rules)
        tally.counts[verdict] += 1


def judged(row: Row) -> tuple[set[str], str]:
    """The rules that a row needed, and what became of it."""
    if not isinstance(row["request_json"], dict):
        return {"no request recorded"}, "skipped"
    route = route_of(row["method"], _path(row["url"]))
    if route is None or (route.collection != "cachedContents" and route.method not in METHODS):
        return {"another API"}, "skipped"
    rules: set[str] = set()
    target = target_of(route, row, rules)
    refusal = refusal_of(route, target, row["request_json"])
    if is_refused(row):
        return judge_refused(row, refusal, rules), "refused"
    return judge_accepted(row, refusal, target, rules), "accepted"


def judge_accepted(row: Row, refusal: Refusal | None, target: Target | None, rules: set[str]) -> set[str]:
    if refusal is None:
        return rules
    if target is None:
        return rules | {"model unknown"}
    if only_base64(refusal):
        if row.get("base64_cut"):
            return rules | {"base64 cut"}
        if _MASKED.search(json.dumps(row["request_json"])):
            return rules | {"text masked"}
    if row.get("source") == "curated-mock":
        return rules | {"made up"}
    raise Failure(f"{row['id']}: was accepted, but we say {refusal.code} {refusal.message[:300]!r}")


def judge_refused(row: Row, refusal: Refusal | None, rules: set[str]) -> set[str]:
    words = json.dumps(row["response"])
    for name, covers in (
        ("quota", row["status"] == 429 or _QUOTA.search(words)),
        ("credentials", row["status"] in (401, 403) or _CREDENTIALS.search(words)),
        ("world", row["status"] >= 500 or _WORLD.search(words)),
        ("place", _PLACE.search(words)),
        ("text masked", _MASKED.search(json.dumps(row["request_json"]))),
    ):
        if covers and refusal is None:
            return rules | {name}
    if row.get("source") == "curated-mock" and (refusal is None or refusal.code != row["status"]):
        return rules | {"made up"}
    if refusal is None:
        raise Failure(f"{row['id']}: was refused, but we accept it: {words[:300]}")
    if refusal.code != row["status"]:
        raise Failure(f"{row['id']}: was refused with {row['status']}, we say {refusal.code} {refusal.message[:200]!r}")
    return rules


def refusal_of(route: Route, target: Target | None, request: Row) -> Refusal | None:
    """What the emulator says to a request, at the family of models that is the most likely to take it."""
    body = json.dumps(request).encode()
    try:
        if route.method == "countTokens":
            read(CountTokensRequest, body, Dialect(route.api, route.version))
        elif route.collection == "cachedContents":
            read(CachedContent, body, Dialect(route.api, route.version))
        else:
            asked = target or Target("gemini-2.0-flash", route.api, route.version, route.streaming)
            if not exists(asked.model, route.version):
                return Refusal(404, f"models/{asked.model} is not found")
            check(body, asked)
    except Refusal as refusal:
        return refusal
    return None


def target_of(route: Route, row: Row, rules: set[str]) -> Target | None:
    model = route.model
    if model is None or model.lower() == "unknown" or not exists(model, route.version):
        answered = next((name for name in models_of(row["response"]) if exists(name, route.version)), None)
        if answered is not None:
            rules.add("model of the answer")
            model = answered
        elif model is None or model.lower() == "unknown":
            return None
    return Target(model, route.api, route.version, route.streaming)


def models_of(response: Any) -> Iterator[str]:
    if isinstance(response, str):
        yield from re.findall(r'"modelVersion":\s*"([^"]+)"', response)
    for document in response if isinstance(response, list) else [response]:
        if isinstance(document, dict) and isinstance(document.get("modelVersion"), str):
            yield document["modelVersion"]


def is_refused(row: Row) -> bool:
    response = row["response"]
    return row["status"] >= 400 or (isinstance(response, dict) and "error" in response)


def only_base64(refusal: Refusal) -> bool:
    return all("Base64 decoding failed" in line for line in refusal.message.splitlines())


def _path(url: str) -> str:
    parts = urlsplit(url)
    # Recordings through a proxy have its own path before that of the API.
    path = re.sub(r"^.*?(?=/v1(?:beta1?|alpha)?/)", "", parts.path)
    return f"{path}?{parts.query}" if parts.query else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
