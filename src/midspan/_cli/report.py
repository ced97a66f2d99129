"""A run as one JSON object, however it ended."""

import json
import sys
from typing import Any, TextIO

import msgspec

from midspan._cli.exits import sentence_of
from midspan._types.events import RunEnd, RunEvent, RunStart, ToolEnd, ToolStart, TurnEnd, TurnStart
from midspan._types.exchange import Usage
from midspan.errors import LimitReached


class Report:
    """Grows with the events of a run."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.model: str | None = None
        self.answer: str | None = None
        self.turns = 0
        self.usage = Usage()
        self.limit: str | None = None
        self.calls: list[dict[str, Any]] = []
        self._by_index: dict[tuple[int, int], dict[str, Any]] = {}
        """The calls by turn and position: two calls of a turn may share an id."""

    def note(self, event: RunEvent) -> None:
        match event:
            case RunStart(run_id, model):
                self.run_id, self.model = run_id, model
            case TurnStart(turn):
                self.turns = turn
            case TurnEnd(turn=turn, message=message, usage=usage):
                self.usage += usage
                for index, call in enumerate(message.calls):  # also those that a limit, or Ctrl-C, keeps from running
                    self._call(turn, index, call.id, call.name)["arguments"] = call.arguments
            case ToolStart(turn=turn, call=call, index=index):
                self._call(turn, index, call.id, call.name)["arguments"] = call.arguments
            case ToolEnd(turn=turn, result=result, duration_seconds=seconds, index=index):
                ended = {"result": result.value, "is_error": result.is_error, "duration_seconds": round(seconds, 6)}
                self._call(turn, index, result.id, result.name).update(ended)
            case RunEnd(text=text, limit=limit):
                self.answer, self.limit = text, limit

    def _call(self, turn: int, index: int, id: str, name: str) -> dict[str, Any]:
        """The entry of a call, added if there is none yet."""
        entry = self._by_index.get((turn, index))
        if entry is None:
            entry = self._by_index[turn, index] = {"id": id, "name": name, "arguments": {}}
            self.calls.append(entry)
        return entry

    def document(self, error: BaseException | None = None, **more: Any) -> str:
        found = {
            "answer": self.answer,
            "tool_calls": [_UNENDED | call for call in self.calls],
            "usage": {**msgspec.structs.asdict(self.usage), "total": self.usage.total},
            "turns": self.turns,
            "run_id": self.run_id,
            "model": self.model,
            "limit": error.limit if isinstance(error, LimitReached) else self.limit,
            **more,
            "error": None if error is None else fault_of(error),
        }
        return as_json(found)


_UNENDED = {"id": None, "name": None, "arguments": None, "result": None, "is_error": None, "duration_seconds": None}
"""A call that was not run, or did not come to an end, has all fields too."""


def as_json(value: Any) -> str:
    """One document, readable where that is possible; half a character is escaped, as UTF-8 has no form for it.

    JSON is UTF-8, so where stdout is anything else, all that is not ASCII is escaped.
    """
    text = json.dumps(value, ensure_ascii=not _is_utf8(sys.stdout), indent=2, default=repr)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=repr)
    return f"{text}\n"


def _is_utf8(stream: TextIO) -> bool:
    return str(getattr(stream, "encoding", "")).lower().replace("-", "").replace("_", "") == "utf8"


def fault_of(error: BaseException) -> dict[str, str]:
    kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    return {"type": kind, "message": sentence_of(error)}
