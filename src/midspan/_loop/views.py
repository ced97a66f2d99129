"""What the events of a run say about it: its status, its final answer, its error."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from midspan import errors
from midspan._types.events import (
    CANCELLED,
    ErrorInfo,
    Interrupted,
    RunEnd,
    RunEvent,
    RunStart,
    TextDelta,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import FinishReason
from midspan._types.run_state import RunState
from midspan.errors import ConfigError, LimitReached, MidspanError, ProviderError, RunError


class Phase(StrEnum):
    """What a run is doing."""

    AWAITING_MODEL_CALL = "awaiting_model_call"
    EXECUTING_TOOLS = "executing_tools"
    AWAITING_FINAL_RESPONSE = "awaiting_final_response"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RunStatus(Struct, frozen=True):
    """The status of a run."""

    run_id: str
    phase: Phase = Phase.AWAITING_MODEL_CALL
    turn: int = 0
    events: int = 0
    """The number of events so far."""
    error: str | None = None
    elsewhere: bool = False
    """The run has not ended, and not this process runs it: another process does, or was killed."""

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.COMPLETED, Phase.CANCELLED, Phase.FAILED)

    def after(self, event: RunEvent) -> "RunStatus":
        events = self.events + 1
        match event:
            case TurnStart(turn):
                is_first = self.phase is Phase.AWAITING_MODEL_CALL
                phase = Phase.AWAITING_MODEL_CALL if is_first else Phase.AWAITING_FINAL_RESPONSE
                return replace(self, phase=phase, turn=turn, events=events)
            case ToolStart():
                return replace(self, phase=Phase.EXECUTING_TOOLS, events=events)
            case Interrupted():
                return replace(self, phase=Phase.INTERRUPTED, events=events)
            case RunEnd(error=None):
                return replace(self, phase=Phase.COMPLETED, events=events)
            case RunEnd(error=ErrorInfo(kind, message)):
                phase = Phase.CANCELLED if kind == CANCELLED else Phase.FAILED
                return replace(self, phase=phase, events=events, error=f"{kind}: {message}")
        return replace(self, events=events)


async def final_text(
    events: AsyncGenerator[tuple[int, RunEvent], None],
) -> AsyncGenerator[tuple[int, TextDelta | TurnRetry], None]:
    """The text of the final answer, from numbered events. Raises the error of a run that has no answer.

    Text of a turn in which the model cannot make calls is passed on as it comes. Other text is held back until the run
    has ended, because a call may follow. If text that was passed on turns out not to be the answer (its stream was cut
    and the model is asked again), a TurnRetry says that the text starts anew.
    """
    passed: list[str] = []
    held: list[tuple[int, TextDelta]] = []
    is_answer = continues = False
    state: RunState | None = None
    async with aclosing(events):
        async for number, event in events:
            if type(event) is TextDelta:
                if is_answer:
                    passed.append(event.text)
                    yield number, event
                else:
                    held.append((number, event))
                continue
            state = state.after(event) if state is not None else _first_state(event)
            match event:
                case TurnStart():
                    is_answer = event.answer_only
                case TurnEnd():
                    continues = event.finish_reason is FinishReason.CONTINUES
                case ToolStart() | TurnRetry() if not (continues and isinstance(event, TurnRetry)):
                    held.clear()
                    if passed:
                        passed.clear()
                        yield number, event if isinstance(event, TurnRetry) else TurnRetry(event.turn, _CALL)
                case RunEnd(error=ErrorInfo() as info):
                    raise error_of(info, event.limit, state)
                case RunEnd():
                    for item in _last_text("".join(passed), held, number, event):
                        yield item
                    return
    raise RunError("the events of the run have no RunEnd")


_CALL = "the model made a call, so its text was not the answer"
_OTHER_TEXT = "the run ended with another text"


def _first_state(event: RunEvent) -> RunState | None:
    return RunState.of_events([event]) if isinstance(event, RunStart) else None


def _last_text(
    passed: str, held: list[tuple[int, TextDelta]], number: int, end: RunEnd
) -> list[tuple[int, TextDelta | TurnRetry]]:
    """What is left of the answer when the run has ended; the text may be a tool's or a limit's, not the model's."""
    if passed + "".join(delta.text for _, delta in held) == end.text:
        return [*held]
    if not end.text.startswith(passed):
        return [(number, TurnRetry(end.turns, _OTHER_TEXT)), *_last_text("", [], number, end)]
    rest = end.text[len(passed) :]
    return [(number, TextDelta(end.turns, rest))] if rest else []


def error_of(info: ErrorInfo, limit: str | None, state: RunState | None) -> MidspanError:
    """The exception for a stored error, of the same class if it is one of ours."""
    kind = getattr(errors, info.kind, None)
    error: MidspanError
    if kind is LimitReached:
        error = LimitReached(info.message, limit or "max_turns")
    elif isinstance(kind, type) and issubclass(kind, RunError | ConfigError | ProviderError):
        error = kind(info.message)
    else:
        error = RunError(f"the run ended without an answer: {info.kind}: {info.message}")
    error.kind = info.kind
    error.transcript = None if state is None else state.history
    return error
