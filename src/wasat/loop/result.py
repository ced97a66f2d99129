"""What a run gives: the answer, and all that led to it."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from wasat.errors import ArgumentError, ConfigError
from wasat.loop.run import Run
from wasat.loop.state import CANCELLED, ToolRun
from wasat.types.events import RunEnd, RunEvent
from wasat.types.exchange import FinishReason, ModelResponse, Source, Usage
from wasat.types.messages import History, Message

if TYPE_CHECKING:
    from wasat.loop.output import TypedOutput


class RunResult(Struct, frozen=True, eq=False):
    """The answer and how it came about."""

    text: str
    output: Any
    """The answer in the form that was asked for; the text where none was."""
    messages: History
    """The whole conversation; give it to the next run to go on."""
    new_messages: tuple[Message, ...]
    """What this run added to it, from the prompt on."""
    tool_calls: tuple[ToolRun, ...]
    usage: Usage
    """Over all requests."""
    turns: int
    """How often the model was asked."""
    run_id: str
    finish: FinishReason
    sources: tuple[Source, ...]
    """What the answer rests on, where the provider's own tools searched for it."""
    response: ModelResponse
    """What the model said last, with all that the provider sent."""
    limit: str | None = None
    """The limit that the run came to, where it ended all the same without an error."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:60]}…"
        return f"<result {text!r}, {self.turns} turns, {len(self.tool_calls)} tool calls>"


def result_of(run: Run, end: RunEnd, given: int) -> RunResult:
    """The result of a run that ended."""
    state, output = run.state, run.plan.output
    value: Any = end.text
    if run.final is not None:
        value = run.final.value if output is None else _fitting(output, run.final.value)
    elif output is not None and not run.ends_politely:
        value = output.read(end.text)
    return RunResult(
        text=end.text,
        output=value,
        messages=state.history,
        new_messages=state.history[given:],
        tool_calls=state.tool_runs,
        usage=state.usage,
        turns=state.turn,
        run_id=run.id,
        finish=run.answer.finish,
        sources=tuple(dict.fromkeys(state.sources)),
        response=run.answer,
        limit=end.limit,
    )


def _fitting(output: "TypedOutput", value: Any) -> Any:
    """What a tool ended the run with, in the form that was asked for if it has it."""
    try:
        return output.shape.made(value)
    except ArgumentError:
        return value


class RunStream:
    """The events of a run, to be taken once. `aclose`, or the end of an `async with`, stops the run."""

    def __init__(self, events: AsyncGenerator[RunEvent, None], history: History, given: int) -> None:
        self._events = events
        self._history = history
        self._given = given
        self._taken = False
        self._run: Run | None = None
        self._result: RunResult | None = None

    def begin(self, run: Run) -> None:
        """Called by the agent, when the first event is asked for and the run is made."""
        self._run = run

    def end(self, event: RunEnd) -> None:
        """Called by the agent, with the last event."""
        assert self._run is not None, "a run ends after it began"
        self._result = result_of(self._run, event, self._given)

    @property
    def result(self) -> RunResult:
        """What the run gave, when it is over."""
        if self._result is None:
            raise ConfigError("the run has not ended; take its events to the end first")
        return self._result

    @property
    def messages(self) -> History:
        """The conversation so far, fit to go on with at any time: a call that still runs is told to be cancelled."""
        return self._history if self._run is None else self._run.state.settled(CANCELLED).history

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return Usage() if self._run is None else self._run.state.usage

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        if self._taken:
            raise ConfigError("the events of a run can be taken only once; ask again for another run")
        self._taken = True
        return self._events

    async def aclose(self) -> None:
        """Stop the run, wherever it is, and wait until nothing of it is left."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
