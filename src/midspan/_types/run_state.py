"""The state of a run: an immutable value that each event turns into the next one."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._types import events
from midspan._types.exchange import CONTINUES, CUT, END, Citation, FinishReason, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import NOT_RUN, REFUSAL_KINDS, Blob, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import ToolChoice

CALL_NOT_RUN = "was not run, because the run ended"
CALL_CANCELLED = "was cancelled before it ended; whether it had an effect is unknown"
MAX_RETRIES = 3
"""How often in a row the model is asked again before a run gives up."""


class ToolRun(Struct, frozen=True, gc=False):
    """A call and its result."""

    call: ToolCall
    result: ToolResult
    duration_seconds: float
    index: int = 0
    """The position of the call in its turn."""

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        return self.call.arguments

    @property
    def value(self) -> Any:
        return self.result.value

    @property
    def is_error(self) -> bool:
        return self.result.is_error

    @property
    def was_run(self) -> bool:
        """Whether the tool was executed: its call was valid, and no rule of the run refused it."""
        return NOT_RUN not in self.result.notes and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """Whether a rule of the run kept the call from running."""
        return bool(self.result.notes) and not REFUSAL_KINDS.isdisjoint(self.result.notes)


class RunState(Struct, frozen=True, gc=False):
    """Everything that a run has done. `RunState.of_events` restores it from the events of the run."""

    history: History
    turn: int = 0
    extra_requests: int = 0
    """Requests beyond the first of each turn: a response may take several."""
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()
    """The calls of the turn, until all of them have results."""
    ended: tuple[ToolRun, ...] = ()
    """The calls of the turn that have results, in the order in which they ended."""
    tool_runs: tuple[ToolRun, ...] = ()
    """The calls of all earlier turns."""
    citations: tuple[Citation, ...] = ()
    failed_turns: int = 0
    """Turns in a row without usable content."""
    finish_reason: FinishReason = END
    """Of the last response."""
    tool_choice: ToolChoice | None = None
    """Of the last request."""
    tools_withdrawn: bool = False
    """Whether the last request allowed only an answer, because a limit was reached."""
    limit: str | None = None
    """The limit that was reached; since then the model is only asked for its answer."""
    has_run_call: bool = False
    """Whether a valid call of this run was executed."""
    refused_turns: int = 0
    """Turns in a row in which all calls were refused. Reset when the model may only answer."""
    partial_text: str = ""
    """The text of turns in which the model paused, since the last call."""
    final_result: ToolResult | None = None
    """The result of the last turn with which a tool ended the run."""

    @classmethod
    def of(cls, history: History) -> "RunState":
        """Return the state at the start of a run. Calls at the end of the history that have no results come first."""
        messages = history.messages
        return cls(history, calls=messages[-1].calls if messages and messages[-1].role == "model" else ())

    @classmethod
    def of_events(cls, run_events: Iterable[events.RunEvent]) -> "RunState":
        """Return the state of a run after these events, which begin with its RunStart."""
        state = cls.of(History())
        for event in run_events:
            state = state.after(event)
        return state

    def after(self, event: events.RunEvent) -> "RunState":
        """Return the state after an event."""
        change = _CHANGES.get(type(event))
        return self if change is None else change(self, event)

    def after_request(self, event: events.TurnStart) -> "RunState":
        return replace(
            self,
            turn=event.turn,
            tool_choice=event.tool_choice,
            tools_withdrawn=event.tools_withdrawn,
            limit=event.limit,
            refused_turns=self.refused_turns if self.tools_withdrawn is event.tools_withdrawn else 0,
        )

    def after_retry(self, event: events.TurnRetry) -> "RunState":
        history = self.history if event.message is None else self.history.append(event.message)
        # A request for another answer discards the text so far; a pause or a cut response continues it.
        partial_text = self.partial_text if event.message is None or self.finish_reason is CONTINUES else ""
        return replace(self, history=history, failed_turns=self.failed_turns + 1, partial_text=partial_text)

    def after_end(self, event: events.RunEnd) -> "RunState":
        if event.error is not None:
            return self.settled(CALL_CANCELLED if event.error.kind == events.CANCELLED else CALL_NOT_RUN)
        # A message that replaces the answer becomes part of the conversation.
        is_recorded = event.limit is None or not event.text or self.history[-1].role == "model"
        if is_recorded:
            return self
        return replace(self, history=self.history.append(Message("model", (Text(event.text),))))

    def after_response(self, event: events.TurnEnd) -> "RunState":
        message, finish_reason = event.message, event.finish_reason
        usage, extra_requests = self.usage + event.usage, self.extra_requests + event.requests - 1
        calls, pauses = message.calls, finish_reason is CONTINUES
        if finish_reason is CUT or (not calls and is_empty(message)):
            return replace(self, usage=usage, extra_requests=extra_requests, finish_reason=finish_reason)
        partial_text = "" if calls else self.partial_text
        if pauses and not calls:
            partial_text += message.text
        return replace(
            self,
            history=self.history.append(message),
            usage=usage,
            extra_requests=extra_requests,
            citations=self.citations + event.citations,
            calls=calls,
            failed_turns=0 if calls or pauses else self.failed_turns,
            finish_reason=finish_reason,
            partial_text=partial_text,
        )

    def after_call(self, event: events.ToolEnd) -> "RunState":
        result = event.result
        tool_run = ToolRun(self.calls[event.index], result, event.duration_seconds, event.index)
        is_refused = tool_run.is_refused
        limit = self.limit or (result.meta.get("limit") if is_refused else None)
        has_run_call = self.has_run_call or (self.turn > 0 and tool_run.was_run)
        tool_runs: tuple[ToolRun, ...] = (tool_run,)
        results: tuple[ToolResult, ...] = (result,)
        final = result if result.is_final else None
        if len(self.calls) > 1:
            tool_runs = (*self.ended, tool_run)
            if len(tool_runs) < len(self.calls):
                return replace(self, ended=tool_runs, limit=limit, has_run_call=has_run_call)
            tool_runs = tuple(sorted(tool_runs, key=lambda run: run.index))
            results = tuple([run.result for run in tool_runs])
            is_refused = all(run.is_refused for run in tool_runs)
            final = next((result for result in results if result.is_final), None)
        return replace(
            self,
            history=self.history.append(Message("user", results)),
            calls=(),
            ended=(),
            tool_runs=self.tool_runs + tool_runs,
            limit=limit,
            has_run_call=has_run_call,
            refused_turns=self.refused_turns + 1 if is_refused else 0,
            final_result=final,
        )

    def settled(self, reason: str) -> "RunState":
        """Return the state with an error result for each call that has none, so that the conversation can continue."""
        state = self
        for index, call in self.unanswered:
            state = state.after(events.ToolEnd(self.turn, call.error_result(f"{call.name} {reason}"), 0.0, index))
        return state

    @property
    def requests(self) -> int:
        """The number of requests to the model."""
        return self.turn + self.extra_requests

    @property
    def unanswered(self) -> list[tuple[int, ToolCall]]:
        """The calls of the turn that have no result yet, each with its position in the turn."""
        if not self.ended:
            return list(enumerate(self.calls))
        ended = {run.index for run in self.ended}
        return [(index, call) for index, call in enumerate(self.calls) if index not in ended]

    @property
    def retries_exhausted(self) -> bool:
        return self.failed_turns >= MAX_RETRIES


_CHANGES: dict[type[events.RunEvent], Callable[[RunState, Any], RunState]] = {
    events.RunStart: lambda _, event: RunState.of(History(event.messages)),
    events.TurnStart: RunState.after_request,
    events.TurnEnd: RunState.after_response,
    events.TurnRetry: RunState.after_retry,
    events.ToolEnd: RunState.after_call,
    events.RunEnd: RunState.after_end,
    events.Interrupted: lambda state, _: state.settled(CALL_CANCELLED),
}
"""The events that change the state of a run."""


def is_empty(message: Message) -> bool:
    """Whether the message has nothing to send back: no call, no media, no text, no part of a kind we do not know."""
    return all(isinstance(part, Thought) or (isinstance(part, Text) and not part.text) for part in message.parts)


def has_answer(message: Message) -> bool:
    """Whether the message has text or media."""
    return bool(message.text.strip()) or any(type(part) is Blob for part in message.parts)
