"""Calls that are not run at all: those that the model may not make now, and those beyond a limit."""

from collections.abc import Mapping, Sequence

from midspan.errors import LimitReached
from midspan.loop.stop import INCOMPLETE
from midspan.types.exchange import FinishReason
from midspan.types.parts import ToolCall
from midspan.types.specs import ToolChoice

_WITHDRAWN = "cannot be called any more: the same calls gave the same results. Answer in words, with what you know."
_FORBIDDEN = "may not be called now. Answer in words, with what you know."

_CUT = "was not run: the response was cut off, so the arguments may be incomplete. Call it again, with less text."

Refused = dict[int, str]
"""Why, by the place of the call."""


def forbidden(choice: ToolChoice, calls: Sequence[ToolCall], *, withdrawn: bool) -> Refused:
    """Calls that the model was asked not to make."""
    if choice.mode == "none":
        return dict.fromkeys(range(len(calls)), _WITHDRAWN if withdrawn else _FORBIDDEN)
    if choice.mode != "any" or not choice.names:
        return {}
    words = f"may not be called now; only {', '.join(choice.names)} may"
    return {place: words for place, call in enumerate(calls) if call.name not in choice.names}


def unreadable(calls: Sequence[ToolCall], finish_reason: FinishReason) -> Refused:
    """Calls whose arguments are unreadable or may be incomplete: those are never run."""
    refused = {
        place: f"was not run: {call.arguments_error}. Call it again with valid arguments."
        for place, call in enumerate(calls)
        if call.arguments_error is not None
    }
    if calls and finish_reason in INCOMPLETE:
        refused.setdefault(len(calls) - 1, _CUT)
    return refused


def beyond(limits: Mapping[int, LimitReached]) -> Refused:
    """Calls for which there is no room any more, each for its own limit."""
    return {place: f"was not run: {limit}" for place, limit in limits.items()}
