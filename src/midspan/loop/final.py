"""The final answer alone, of all that a run tells."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from midspan import errors
from midspan.errors import ConfigError, LimitReached, MidspanError, ProviderError, RunError
from midspan.loop.state import RunState
from midspan.types.events import (
    ErrorInfo,
    RunEnd,
    RunEvent,
    RunStart,
    TextDelta,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan.types.messages import History


async def final_text(
    events: AsyncGenerator[tuple[int, RunEvent], None],
) -> AsyncGenerator[tuple[int, TextDelta], None]:
    """Of numbered events, the text of the final answer; what the run ended with, and the transcript, if there is none.

    What a model says before a call, or before it is cut off, is not the answer, and only the end of a turn tells.
    """
    held: list[tuple[int, TextDelta]] = []
    told: list[RunEvent] = []
    async with aclosing(events):
        async for number, event in events:
            match event:
                case TextDelta():
                    held.append((number, event))
                case RunStart() | TurnEnd() | ToolEnd():
                    told.append(event)
                case TurnStart() | ToolStart() | TurnRetry():
                    held.clear()
                    told.append(event)
                case RunEnd(error=ErrorInfo() as error):
                    raise error_of(error, event.limit, [*told, event])
                case RunEnd(text=text, turns=turns):
                    said = "".join(delta.text for _, delta in held)
                    # A tool or a limit may have had the last word, and not the model.
                    for item in held if said == text else [(number, TextDelta(turns, text))] if text else []:
                        yield item
                    return
    raise RunError("the events of the run are over, but none of them is its end")


def error_of(info: ErrorInfo, limit: str | None, events: Iterable[RunEvent]) -> MidspanError:
    """The error that a run ended with, for somebody who knows only its events: of its kind, if that is one of ours."""
    kind = getattr(errors, info.kind, None)
    error: MidspanError
    if kind is LimitReached:
        error = LimitReached(info.message, limit or "max_turns")
    elif isinstance(kind, type) and issubclass(kind, RunError | ConfigError | ProviderError):
        error = kind(info.message)
    else:
        error = RunError(f"the run ended without an answer: {info.kind}: {info.message}")
    error.kind = info.kind
    error.transcript = _history(events)
    return error


def _history(events: Iterable[RunEvent]) -> History | None:
    """The conversation that a run leaves behind, fit to go on with; None if it ended before it began."""
    state: RunState | None = None
    for event in events:
        if isinstance(event, RunStart):
            state = RunState.of(History(event.messages))
        elif state is not None:
            state = state.after(event)
    return None if state is None else state.history
