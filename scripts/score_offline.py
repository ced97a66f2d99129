"""Score the offline model: `python scripts/score_offline.py FILE…`, each a .jsonl of function-calling rows.

A row has `functions`, `question` and `expect` (calls, no_call). Rows with one true call are scored for the right tool
and for the exact call, as the Berkeley leaderboard defines it: each argument among the acceptable values, texts
compared without case, spaces and punctuation, and left out only where that is acceptable. Rows where nothing fits are
scored for false calls. Rows with several true calls are told beside them. Exits 1 if a row cannot be read.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from row_files import Tally, lines_of

from midspan.providers.offline.client import Offline
from midspan.types.exchange import ModelRequest, RequestConfig
from midspan.types.messages import History, Message
from midspan.types.parts import Text, ToolCall
from midspan.types.specs import ToolSpec

Row = dict[str, Any]

# «tomorrow» must mean the same day whenever this is run.
MODEL = Offline(today=lambda: date(2024, 1, 1))


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    tally = Tally()
    for name in files:
        score(Path(name), tally)
    told = {
        "right tool": ("right_tool", "single"),
        "right tool, one offered": ("right_tool_alone", "single_alone"),
        "right tool, several offered": ("right_tool_several", "single_several"),
        "exact call": ("exact", "single"),
        "asked back instead of calling": ("asked", "single"),
        "false calls where nothing fits": ("false_call", "irrelevant"),
        "several calls, all exact": ("several_exact", "several"),
    }
    for label, (part, whole) in told.items():
        print(f"{label}: {tally.share(part, whole)} of {tally.counts[whole]}")
    counted = " ".join(f"{name}={count}" for name, count in sorted(tally.counts.items()))
    print(f"{counted} failures={tally.failed}")
    return 1 if tally.failed else 0


def score(file: Path, tally: Tally) -> None:
    for place, line in lines_of(file, tally.fail):
        score_line(line, place, tally)


def score_line(line: bytes, place: str, tally: Tally) -> None:
    tally.counts["rows"] += 1
    try:
        row = json.loads(line)
        score_row(row, tally)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        tally.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")


def score_row(row: Row, tally: Tally) -> None:
    true = [call for call in row["calls"] or () if "name" in call] if row["expect"] == "calls" else []
    if row["expect"] == "no_call":
        tally.counts["irrelevant"] += 1
        tally.counts["false_call"] += bool(calls_for(row)[0])
    elif len(true) == 1:
        score_single(row, true[0], tally)
    elif true:
        made, _ = calls_for(row)
        tally.counts["several"] += 1
        tally.counts["several_exact"] += all_exact(made, true)
    else:
        tally.counts["skipped"] += 1


def score_single(row: Row, true: Row, tally: Tally) -> None:
    made, text = calls_for(row)
    offered = "several" if len(row["functions"]) > 1 else "alone"
    right = [call.name for call in made] == [true["name"]]
    tally.counts.update(["single", f"single_{offered}"])
    tally.counts["right_tool"] += right
    tally.counts[f"right_tool_{offered}"] += right
    tally.counts["exact"] += right and is_exact(made[0], true)
    tally.counts["asked"] += not made and text.endswith("?")


def calls_for(row: Row) -> tuple[tuple[ToolCall, ...], str]:
    """What the model does at once: its calls, or what it says."""
    tools = tuple(
        ToolSpec(one["name"], one.get("description") or "", one.get("parameters")) for one in row["functions"]
    )
    system = [one["content"] for one in row["question"][0] if one["role"] == "system"]
    messages = list(conversation(row["question"][0]))
    config = RequestConfig(MODEL.model, system="\n".join(system) or None, tools=tools)
    answer = MODEL.respond(ModelRequest(config, History(messages))).message
    return answer.calls, answer.text


def conversation(turns: list[Row]) -> Iterator[Message]:
    for turn in turns:
        if turn["role"] == "user":
            yield Message.user(turn["content"])
        elif turn["role"] == "assistant":
            yield Message("model", (Text(turn["content"]),))


def all_exact(made: tuple[ToolCall, ...], true: list[Row]) -> bool:
    """Whether each true call was made, in any order, and no other."""
    left = list(made)
    for one in true:
        match = next((call for call in left if call.name == one["name"] and is_exact(call, one)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def is_exact(call: ToolCall, true: Row) -> bool:
    if "acceptable_args" in true:
        return are_acceptable(call.arguments, true["acceptable_args"])
    values = [*true.get("positional", ()), *true["args"].values()]
    if true.get("positional"):
        return len(values) == len(call.arguments) and all(
            is_same(given, value) for given, value in zip(call.arguments.values(), values, strict=True)
        )
    return are_acceptable(call.arguments, {name: [value] for name, value in true["args"].items()})


def are_acceptable(given: Row, acceptable: Row) -> bool:
    for name, value in given.items():
        values = acceptable.get(name)
        listed = values if isinstance(values, list) else [values]
        if name not in acceptable or not any(is_same(value, one) for one in listed):
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
        return same_length and all(is_same(one, other) for one, other in zip(value, acceptable, strict=True))
    return bool(value == acceptable)


def plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
