"""The result of a run, and the final answer computed from its events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic

from msgspec import Struct

from midspan import errors
from midspan._loop.options import OutputT
from midspan._types.events import ErrorInfo, Interrupted, RunEnd, RunEvent, TextDelta, TurnEnd, TurnRetry, TurnStart
from midspan._types.exchange import Citation, FinishReason, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.run_state import CALL_CANCELLED, RunState, ToolRun
from midspan._types.texts import count_noun
from midspan.errors import ConfigError, LimitReachedError, MidspanError, ProviderError, RunError

NumberedEvents = AsyncGenerator[tuple[int, RunEvent], None]


class RunResult(Struct, Generic[OutputT], frozen=True, eq=False):
    """The answer of a run, with its messages, calls and usage."""

    text: str
    output: OutputT
    """The answer as the requested type; the text if none was requested."""
    messages: History
    """The whole conversation; pass it to the next run to continue."""
    new_messages: tuple[Message, ...]
    """The messages that this run added, from the prompt on."""
    tool_calls: tuple[ToolRun, ...]
    usage: Usage
    """Of all requests."""
    turns: int
    """The number of turns of the model."""
    run_id: str
    finish_reason: FinishReason
    citations: tuple[Citation, ...]
    """The sources of the answer, if the provider's own tools searched for it."""
    response: ModelResponse
    """The last response of the model, with everything that the provider sent."""
    limit: str | None = None
    """The limit that the run reached, if it ended without an error."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:60]}…"
        calls = count_noun(len(self.tool_calls), "tool call")
        return f"RunResult({text!r}, {count_noun(self.turns, 'turn')}, {calls})"


async def final_text(events: NumberedEvents) -> AsyncGenerator[tuple[int, TextDelta | TurnRetry], None]:
    """Yield the text of the final answer from numbered events. Raises the error of a run that has no answer.

    Text of a turn in which the model cannot make calls is passed on as it comes. Other text is passed on when the run
    has ended, because a call may follow. If text that was passed on turns out not to be the answer (its stream was cut
    and the model is asked again), a TurnRetry tells the reader to discard it.
    """
    passed = ""
    is_answer = is_paused = False
    problem = "the events of the run have no RunEnd"
    state = RunState.of(History())
    async with aclosing(events):
        async for number, event in events:
            state = state.after(event)
            match event:
                case TextDelta() if is_answer:
                    passed += event.text
                    yield number, event
                case TurnStart():
                    is_answer = event.answer_only
                case TurnEnd():
                    is_paused = event.finish_reason is FinishReason.CONTINUES
                case TurnRetry() if passed and not is_paused:
                    passed = ""
                    yield number, event
                case Interrupted(message):
                    problem = f"the run was interrupted: {message}"
                case RunEnd(error=ErrorInfo() as info):
                    raise error_of(info, event.limit, state)
                case RunEnd(text=text, turns=turns):
                    if not text.startswith(passed):  # it is the text of a tool, of a limit or of another turn
                        passed = ""
                        yield number, TurnRetry(turns, "the run ended with another text")
                    if text != passed:
                        yield number, TextDelta(turns, text.removeprefix(passed))
                    return
    error = RunError(problem)
    error.transcript = state.settled(CALL_CANCELLED).history  # a call without a stored result may have had its effect
    raise error


def error_of(info: ErrorInfo, limit: str | None, state: RunState) -> MidspanError:
    """Return the exception for a stored error.

    It has the same class if that is a RunError, ConfigError or ProviderError; else it is a RunError that names it.
    """
    error_class = getattr(errors, info.kind, None)
    error: MidspanError
    if error_class is LimitReachedError:
        error = LimitReachedError(info.message, limit or "max_turns")
    elif isinstance(error_class, type) and issubclass(error_class, RunError | ConfigError | ProviderError):
        error = error_class(info.message)
    else:
        error = RunError(f"the run ended without an answer: {info.kind}: {info.message}")
    error.kind = info.kind
    error.transcript = state.history
    return error
