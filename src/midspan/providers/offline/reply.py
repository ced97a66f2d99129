"""What the model says next: calls, a question, or what its tools have said."""

from datetime import date

from msgspec.structs import replace

from midspan.providers.offline.answer import introduction, question, report
from midspan.providers.offline.declared.catalogue import Catalogue, catalogue
from midspan.providers.offline.plan import Plan, plan
from midspan.providers.offline.situation import Situation, situation
from midspan.providers.offline.structured import structured
from midspan.types.exchange import ModelRequest
from midspan.types.parts import Text, ToolCall


def reply(request: ModelRequest, today: date) -> tuple[ToolCall, ...] | Text:
    """The calls to make, or the words to say."""
    now = situation(request.history)
    known, forced, silent = _allowed(request)
    step = plan(known, now, today, forced=forced and not now.done)
    if step.calls and not silent:
        return tuple(
            ToolCall(f"offline_{now.calls_so_far + at}", tool.name, arguments)
            for at, (tool, arguments) in enumerate(step.calls)
        )
    text = _text(known, now, step)
    output = request.config.output
    return Text(text if output is None else structured(output.json_schema, now.done, text))


def _allowed(request: ModelRequest) -> tuple[Catalogue, bool, bool]:
    """The tools that may be called, whether one must be, and whether none may."""
    known, choice = catalogue(request.config), request.config.tool_choice
    if choice is None:
        return known, False, False
    if choice.names:
        known = replace(known, tools=tuple(tool for tool in known.tools if tool.name in choice.names))
    return known, choice.mode == "any", choice.mode == "none"


def _text(known: Catalogue, now: Situation, step: Plan) -> str:
    asked = question(step) if step.missing and not step.calls else ""
    if now.done:
        told = report(now.done, step.looked_up)
        return asked if step.labels else f"{told}\n{asked}".strip()
    return asked or introduction(known)
