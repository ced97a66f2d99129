"""Events of a run, in the order in which they happen."""

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
from midspan._types.events import ToolStart as ToolStart
from midspan._types.events import TurnEnd as TurnEnd
from midspan._types.events import TurnRetry as TurnRetry
from midspan._types.events import TurnStart as TurnStart
from midspan._types.events import UnknownEvent as UnknownEvent
from midspan._types.events import decode_event as decode_event
from midspan._types.events import public_event as public_event
