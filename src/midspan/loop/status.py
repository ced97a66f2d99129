"""Where a run stands, as its events tell it."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from midspan.types.events import CANCELLED, ErrorInfo, RunEnd, RunEvent, ToolStart, TurnStart


class Phase(StrEnum):
    """What a run is doing."""

    AWAITING_MODEL_CALL = "awaiting_model_call"
    EXECUTING_TOOLS = "executing_tools"
    AWAITING_FINAL_RESPONSE = "awaiting_final_response"
    COMPLETED = "completed"
    STOPPED = "stopped"
    ERROR = "error"


class StreamStatus(Struct, frozen=True):
    """Where a run stands."""

    run_id: str
    phase: Phase = Phase.AWAITING_MODEL_CALL
    turn: int = 0
    events: int = 0
    """How many there are so far."""
    error: str | None = None
    elsewhere: bool = False
    """It has not ended and is not driven by whoever was asked: another process goes on with it, or was killed."""

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.COMPLETED, Phase.STOPPED, Phase.ERROR)

    def after(self, event: RunEvent) -> "StreamStatus":
        events = self.events + 1
        match event:
            case TurnStart(turn):
                first = self.phase is Phase.AWAITING_MODEL_CALL
                phase = Phase.AWAITING_MODEL_CALL if first else Phase.AWAITING_FINAL_RESPONSE
                return replace(self, phase=phase, turn=turn, events=events)
            case ToolStart():
                return replace(self, phase=Phase.EXECUTING_TOOLS, events=events)
            case RunEnd(error=None):
                return replace(self, phase=Phase.COMPLETED, events=events)
            case RunEnd(error=ErrorInfo(kind, message)):
                phase = Phase.STOPPED if kind == CANCELLED else Phase.ERROR
                return replace(self, phase=phase, events=events, error=f"{kind}: {message}")
        return replace(self, events=events)
