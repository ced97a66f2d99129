"""The lines of a recording: what each of them says."""

from typing import Any

from msgspec import Raw, Struct

from midspan._types.exchange import ModelResponse, PartEvent
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec

FORM = 2
"""The version of the form that recordings are written in."""


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception: what it is called, its words, and what else it carries."""

    type: str
    message: str
    carries: dict[str, Any] = {}


class Began(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="run"):
    """The first line: which run this is, and what it was asked."""

    form: int
    run_id: str
    model: str
    recorded_at: str
    messages: tuple[Message, ...]
    options: dict[str, Any] = {}
    """What was wanted of this run alone, of what can be said in JSON."""
    unsaid: tuple[str, ...] = ()
    """The names of the options that cannot."""


class Listed(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="tools"):
    """The tools there were."""

    tools: tuple[ToolSpec, ...]


class Asked(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="ask"):
    """A request as the provider sends it, if the provider shows that; else our own values."""

    model: str
    stream: bool
    request: Raw
    path: str | None = None


class Streamed(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="event"):
    """An event of a streamed response, as it came."""

    event: PartEvent


class Answered(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="answer"):
    """The end of an answer: all of it, with every document that the provider sent."""

    response: ModelResponse


class Failed(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="error"):
    """The end of an answer that there is not."""

    error: Failure


class Silent(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="silence"):
    """The end of an answer that just stopped, without a word on why."""


class Called(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="call"):
    """A call that ended. Without result and error its source broke its promise to give one."""

    call: ToolCall
    seconds: float
    result: ToolResult | None = None
    error: Failure | None = None


class Ended(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="end"):
    """The last line; where it is missing, the run was broken off."""

    text: str = ""
    turns: int = 0
    calls: tuple[ToolCall, ...] = ()
    """In the order in which the run tells them."""
    error: Failure | None = None


Line = Began | Listed | Asked | Streamed | Answered | Failed | Silent | Called | Ended
