"""Events of a run, in the order in which they happen."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._types.events import ApprovalNeeded as ApprovalNeeded
    from midspan._types.events import ErrorInfo as ErrorInfo
    from midspan._types.events import Interrupted as Interrupted
    from midspan._types.events import PublicEvent as PublicEvent
    from midspan._types.events import RequestRetry as RequestRetry
    from midspan._types.events import RunEnd as RunEnd
    from midspan._types.events import RunEvent as RunEvent
    from midspan._types.events import RunStart as RunStart
    from midspan._types.events import SourceUnavailable as SourceUnavailable
    from midspan._types.events import TextDelta as TextDelta
    from midspan._types.events import ThoughtDelta as ThoughtDelta
    from midspan._types.events import ToolCallDelta as ToolCallDelta
    from midspan._types.events import ToolEnd as ToolEnd
    from midspan._types.events import ToolProgress as ToolProgress
    from midspan._types.events import ToolRetry as ToolRetry
    from midspan._types.events import ToolStart as ToolStart
    from midspan._types.events import TurnEnd as TurnEnd
    from midspan._types.events import TurnRetry as TurnRetry
    from midspan._types.events import TurnStart as TurnStart
    from midspan._types.events import UnknownEvent as UnknownEvent
    from midspan._types.events import decode_event as decode_event
    from midspan._types.events import public_event as public_event

_HOMES = {
    "ApprovalNeeded": "midspan._types.events",
    "ErrorInfo": "midspan._types.events",
    "Interrupted": "midspan._types.events",
    "PublicEvent": "midspan._types.events",
    "RequestRetry": "midspan._types.events",
    "RunEnd": "midspan._types.events",
    "RunEvent": "midspan._types.events",
    "RunStart": "midspan._types.events",
    "SourceUnavailable": "midspan._types.events",
    "TextDelta": "midspan._types.events",
    "ThoughtDelta": "midspan._types.events",
    "ToolCallDelta": "midspan._types.events",
    "ToolEnd": "midspan._types.events",
    "ToolProgress": "midspan._types.events",
    "ToolRetry": "midspan._types.events",
    "ToolStart": "midspan._types.events",
    "TurnEnd": "midspan._types.events",
    "TurnRetry": "midspan._types.events",
    "TurnStart": "midspan._types.events",
    "UnknownEvent": "midspan._types.events",
    "decode_event": "midspan._types.events",
    "public_event": "midspan._types.events",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
