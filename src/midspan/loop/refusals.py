"""Calls that are not run at all: those that the model may not make now, and those beyond a limit."""

from collections.abc import Mapping, Sequence

from midspan.errors import LimitReached
from midspan.types.parts import ToolCall
from midspan.types.specs import ToolChoice

_WITHDRAWN = "cannot be called any more: the same calls gave the same results. Answer in words, with what you know."
_FORBIDDEN = "may not be called now. Answer in words, with what you know."

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


def beyond(limits: Mapping[int, LimitReached]) -> Refused:
    """Calls for which there is no room any more, each for its own limit."""
    return {place: f"was not run: {limit}" for place, limit in limits.items()}
