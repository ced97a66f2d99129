"""A run as one JSON object, however it ended."""

import json
from typing import Any

import msgspec

from wasat.surfaces.cli.exits import sentence_of
from wasat.types.events import RunEnd, RunEvent, RunStart, ToolEnd, ToolStart, TurnEnd, TurnStart
from wasat.types.exchange import Usage


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

    def note(self, event: RunEvent) -> None:
        match event:
            case RunStart(run_id, model):
                self.run_id, self.model = run_id, model
            case TurnStart(turn):
                self.turns = turn
            case TurnEnd(usage=usage):
                self.usage += usage
            case ToolStart(call=call):
                self.calls.append({"id": call.id, "name": call.name, "arguments": call.arguments})
            case ToolEnd(result=result, duration_seconds=seconds):
                ended = {"result": result.value, "is_error": result.is_error, "duration_seconds": round(seconds, 6)}
                self._open_call(result.id, result.name).update(ended)
            case RunEnd(text=text, limit=limit):
                self.answer, self.limit = text, limit

    def _open_call(self, id: str, name: str) -> dict[str, Any]:
        """The call that this is the result of; one that was never begun has no start."""
        for call in self.calls:
            if call["id"] == id and "result" not in call:
                return call
        self.calls.append({"id": id, "name": name, "arguments": {}})
        return self.calls[-1]

    def document(self, error: BaseException | None = None, **more: Any) -> str:
        fault = None if error is None else {"type": _type_of(error), "message": sentence_of(error)}
        found = {
            "answer": self.answer,
            "tool_calls": [_UNENDED | call for call in self.calls],
            "usage": msgspec.structs.asdict(self.usage),
            "turns": self.turns,
            "run_id": self.run_id,
            "model": self.model,
            "limit": self.limit,
            **more,
            "error": fault,
        }
        return as_json(found)


_UNENDED = {"id": None, "name": None, "arguments": None, "result": None, "is_error": None, "duration_seconds": None}
"""A call that was begun and did not come to an end has all fields too."""


def as_json(value: Any) -> str:
    """One document, readable where that is possible; half a character is escaped, as UTF-8 has no form for it."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=repr)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=repr)
    return f"{text}\n"


def _type_of(error: BaseException) -> str:
    return "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
