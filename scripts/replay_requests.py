"""Replay recorded requests through the checks of the emulator: python scripts/replay_requests.py FILE…

Each row of a file is one HTTP exchange (see shared/data/README.md for the format). A request that the real server
accepted must be accepted, and one that it rejected for a reason within the request must be rejected with the same
status. RULES lists the kinds of rows that cannot show whether the emulator is right; there are no rules for single
rows. Prints how many rows each rule covered, each failing row with its reason, and the counts on the last line.
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

from midspan.emulator.gemini.api import ApiError, ApiRoute, route_of
from midspan.emulator.gemini.check import check
from midspan.emulator.gemini.models import ModelRules, exists
from midspan.emulator.gemini.reading import read
from midspan.providers.gemini.wire import CachedContent, CountTokensRequest

Row = dict[str, Any]

RULES = {
    "no request recorded": "the recording contains only the response",
    "another API": "an exchange of the Interactions API, or of an endpoint that the emulator does not have",
    "model of the answer": "the recording lost the name of the model or has an alias; the response names the model",
    "model unknown": "the recording lost the name of the model, and the response does not name it",
    "retired model": "the model was shut down since; older recordings show answers of it",
    "base64 cut": "the recording cut long base64, and the rest cannot be decoded; nothing else is wrong",
    "text masked": "the recording replaced a text or its base64, so the original request is not known",
    "made up": "the exchange was written by hand; what a mock accepts says nothing about the real server",
    "quota": "the server rejected the request because of earlier ones",
    "credentials": "the server rejected the caller, whose credentials are not recorded",
    "world": "the server could not fetch something from outside, or had an internal error",
    "place": "the server rejected the location or the project of the caller",
}
METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_QUOTA = re.compile(r"quota|resource.*exhausted|rate.?limit", re.IGNORECASE)
_CREDENTIALS = re.compile(r"unregistered callers|API key|credential|permission|IAM", re.IGNORECASE)
_WORLD = re.compile(
    r"cannot fetch content|URL_|not accessible|robots|unable to process input image|file .*not found", re.IGNORECASE
)
_PLACE = re.compile(r"location is not supported|has not been used in project|billing", re.IGNORECASE)
_MASKED = re.compile(r'"(<[A-Za-z_ -]+>|REDACTED|\[[A-Z_ ]+\])"')


class Mismatch(Exception):
    """The emulator and the real server disagree about a row."""


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    tally = Tally()
    for name in files:
        for place, line in lines_of(Path(name), tally.fail):
            replay(line, place, tally)
    for name, count in tally.kinds.most_common():
        print(f"rule {name}: {count} ({RULES[name]})")
    counts = " ".join(f"{name}={tally.counts[name]}" for name in ("rows", "accepted", "refused"))
    print(f"{counts} failures={tally.failed} by_rule={sum(tally.kinds.values())}")
    return 1 if tally.failed else 0


def replay(line: bytes, place: str, tally: Tally) -> None:
    tally.counts["rows"] += 1
    try:
        row = json.loads(line)
        rules, verdict = judge({"id": place, "request_json": None, "status": 200, "response": None, **row})
    except Mismatch as mismatch:
        tally.fail(f"{place}: {mismatch}")
    except Exception as error:  # noqa: BLE001 - no row may end the script
        tally.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")
    else:
        tally.kinds.update(rules)
        tally.counts[verdict] += 1


def judge(row: Row) -> tuple[set[str], str]:
    """Return the rules that a row needed, and whether the server accepted it."""
    if not isinstance(row["request_json"], dict):
        return {"no request recorded"}, "skipped"
    route = route_of(target_of(row["url"]))
    if route is None or (route.collection != "cachedContents" and route.method not in METHODS):
        return {"another API"}, "skipped"
    rules: set[str] = set()
    model = model_of(route, row, rules)
    error = emulate(route, model, row, rules)
    if is_error(row):
        return judge_rejected(row, error, rules), "refused"
    return judge_accepted(row, error, model, rules), "accepted"


def judge_accepted(row: Row, error: ApiError | None, model: ModelRules | None, rules: set[str]) -> set[str]:
    if error is None:
        return rules
    if model is None:
        return rules | {"model unknown"}
    if all("Base64 decoding failed" in line for line in error.message.splitlines()):
        if row.get("base64_cut"):
            return rules | {"base64 cut"}
        if _MASKED.search(json.dumps(row["request_json"])):
            return rules | {"text masked"}
    if row.get("source") == "curated-mock":
        return rules | {"made up"}
    raise Mismatch(f"{row['id']}: was accepted, but the emulator answers {error.code} {error.message[:300]!r}")


def judge_rejected(row: Row, error: ApiError | None, rules: set[str]) -> set[str]:
    response = json.dumps(row["response"])
    for name, applies in (
        ("quota", row["status"] == 429 or _QUOTA.search(response)),
        ("credentials", row["status"] in (401, 403) or _CREDENTIALS.search(response)),
        ("world", row["status"] >= 500 or _WORLD.search(response)),
        ("place", _PLACE.search(response)),
        ("text masked", _MASKED.search(json.dumps(row["request_json"]))),
    ):
        if applies and error is None:
            return rules | {name}
    if row.get("source") == "curated-mock" and (error is None or error.code != row["status"]):
        return rules | {"made up"}
    if error is None:
        raise Mismatch(f"{row['id']}: was rejected, but the emulator accepts it: {response[:300]}")
    if error.code != row["status"]:
        answer = f"{error.code} {error.message[:200]!r}"
        raise Mismatch(f"{row['id']}: was rejected with {row['status']}, the emulator answers {answer}")
    return rules


def emulate(route: ApiRoute, model: ModelRules | None, row: Row, rules: set[str]) -> ApiError | None:
    """Return the error of the emulator, for an unknown model that of the model that accepts most."""
    body = json.dumps(row["request_json"]).encode()
    try:
        if route.method == "countTokens":
            read(CountTokensRequest, body, ModelRules("", route.api, route.version))
        elif route.collection == "cachedContents":
            read(CachedContent, body, ModelRules("", route.api, route.version))
        else:
            model = model or ModelRules("gemini-2.0-flash", route.api, route.version)
            if not model_exists(model, rules, was_found=row["status"] != 404):
                return ApiError(404, f"models/{model.name} is not found")
            check(body, model, is_streaming=route.is_streaming)
    except ApiError as error:
        return error
    return None


def model_exists(model: ModelRules, rules: set[str], *, was_found: bool) -> bool:
    """Whether the model exists; one that was shut down existed if the recorded server found it."""
    if exists(model.name, model.version):
        return True
    if not was_found or not exists(model.name, model.version, retired=True):
        return False
    rules.add("retired model")
    return True


def model_of(route: ApiRoute, row: Row, rules: set[str]) -> ModelRules | None:
    """Return the model of a row; None if it is not known."""
    model = route.name if route.collection != "cachedContents" else None
    is_lost = model is None or model.lower() == "unknown"
    if model is None or is_lost or not exists(model, route.version, retired=True):
        answered = (name for name in models_in(row["response"]) if exists(name, route.version, retired=True))
        name = next(answered, None)
        if name is not None:
            rules.add("model of the answer")
            model = name
        elif is_lost:
            return None
    return ModelRules(model or "", route.api, route.version)


def models_in(response: Any) -> Iterator[str]:
    if isinstance(response, str):
        yield from re.findall(r'"modelVersion":\s*"([^"]+)"', response)
    for document in response if isinstance(response, list) else [response]:
        if isinstance(document, dict) and isinstance(document.get("modelVersion"), str):
            yield document["modelVersion"]


def is_error(row: Row) -> bool:
    response = row["response"]
    return row["status"] >= 400 or (isinstance(response, dict) and "error" in response)


def target_of(url: str) -> str:
    """Return the path and query of a URL, without the path of a proxy before that of the API."""
    parts = urlsplit(url)
    path = re.sub(r"^.*?(?=/v1(?:beta1?|alpha)?/)", "", parts.path)
    return f"{path}?{parts.query}" if parts.query else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
