"""Score the offline model: `python scripts/score_offline.py FILE…`, each a .jsonl of function-calling rows.

A row has `functions`, `question` and `expect` (calls, no_call). All functions are declared read-only, because the
rows do not say what they change. A call is exact as the Berkeley leaderboard defines it: each argument is among the
acceptable values, texts are compared without case, spaces and punctuation, and an argument is left out only where that
is acceptable. A call is wrong if it has another tool or other arguments than the truth. Exits 1 if a row is unreadable.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from row_files import Tally, lines_of

from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Text, ToolCall
from midspan._types.specs import Effects, ToolSpec
from midspan.providers.offline.client import Offline, respond

Row = dict[str, Any]

MODEL = Offline()


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    tally = Tally()
    for name in files:
        score(Path(name), tally)
    figures = {
        "wrong calls, of all questions": ("wrong", "rows"),
        "calls where none belongs": ("false_call", "irrelevant"),
        "exact calls, of the rows with a single call": ("exact", "single"),
    }
    for label, (part, whole) in figures.items():
        print(f"{label}: {tally.counts[part]} of {tally.counts[whole]} ({percent(tally, part, whole)})")
    counts = " ".join(f"{name}={count}" for name, count in sorted(tally.counts.items()))
    print(f"{counts} failures={tally.failed}")
    return 1 if tally.failed else 0


def percent(tally: Tally, part: str, whole: str) -> str:
    return f"{100 * tally.counts[part] / (tally.counts[whole] or 1):.2f} %"


def score(file: Path, tally: Tally) -> None:
    for place, line in lines_of(file, tally.fail):
        score_line(line, place, tally)


def score_line(line: bytes, place: str, tally: Tally) -> None:
    tally.counts["rows"] += 1
    try:
        row = json.loads(line)
        score_row(row, tally)
    except Exception as error:  # noqa: BLE001 - no row may end the script
        tally.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")


def score_row(row: Row, tally: Tally) -> None:
    if row["expect"] not in ("calls", "no_call"):
        tally.counts["skipped"] += 1
        return
    truth = [call for call in row.get("calls") or () if "name" in call] if row["expect"] == "calls" else []
    calls = calls_for(row)
    is_exact_row = bool(truth) and all_exact(calls, truth)
    kind = "irrelevant" if row["expect"] == "no_call" else "single" if len(truth) == 1 else "several"
    tally.counts[kind] += 1
    tally.counts["exact"] += is_exact_row and kind == "single"
    tally.counts["exact_several"] += is_exact_row and kind == "several"
    tally.counts["false_call"] += bool(calls) and kind == "irrelevant"
    tally.counts["wrong"] += bool(calls) and not is_exact_row


def calls_for(row: Row) -> tuple[ToolCall, ...]:
    """The calls that the model makes at once."""
    tools = tuple(
        ToolSpec(
            function["name"],
            function.get("description") or "",
            function.get("parameters"),
            effects=Effects(reads=("*",)),
        )
        for function in row["functions"]
    )
    config = RequestConfig(MODEL.model, tools=tools)
    return respond(ModelRequest(config, History(list(conversation(row["question"][0]))))).message.calls


def conversation(turns: list[Row]) -> Iterator[Message]:
    for turn in turns:
        content = turn.get("content") or ""
        text = content if isinstance(content, str) else "\n".join(item.get("text") or "" for item in content)
        if turn.get("role") == "user":
            yield Message.user(text)
        elif turn.get("role") == "assistant":
            yield Message("model", (Text(text),))


def all_exact(calls: tuple[ToolCall, ...], correct_calls: list[Row]) -> bool:
    """Return whether exactly the correct calls were made, in any order."""
    left = list(calls)
    for correct in correct_calls:
        match = next((call for call in left if call.name == correct["name"] and is_exact(call, correct)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def is_exact(call: ToolCall, true: Row) -> bool:
    if true.get("acceptable_args") is not None:
        return are_acceptable(call.arguments, true["acceptable_args"])
    positional, named = true.get("positional") or (), true.get("args") or {}
    values = [*positional, *named.values()]
    if positional:
        return len(values) == len(call.arguments) and all(
            is_same(given, value) for given, value in zip(call.arguments.values(), values, strict=True)
        )
    return are_acceptable(call.arguments, {name: [value] for name, value in named.items()})


def are_acceptable(given: Row, acceptable: Row) -> bool:
    for name, value in given.items():
        values = acceptable.get(name)
        listed = values if isinstance(values, list) else [values]
        if name not in acceptable or not any(is_same(value, item) for item in listed):
            return False
    return all(name in given or (isinstance(values, list) and "" in values) for name, values in acceptable.items())


def is_same(value: Any, acceptable: Any) -> bool:
    if isinstance(acceptable, dict):
        return isinstance(value, dict) and are_acceptable(value, acceptable)
    if isinstance(acceptable, str):
        return isinstance(value, str) and plain(value) == plain(acceptable)
    if isinstance(acceptable, bool) or isinstance(value, bool):
        return value is acceptable
    if isinstance(acceptable, int | float):
        return isinstance(value, int | float) and value == acceptable
    if isinstance(acceptable, list):
        same_length = isinstance(value, list) and len(value) == len(acceptable)
        return same_length and all(is_same(item, other) for item, other in zip(value, acceptable, strict=True))
    return bool(value == acceptable)


def plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
