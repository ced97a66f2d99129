"""When a run ends: what a turn without calls means, and how far a run may go."""

from collections import Counter
from collections.abc import Collection
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import AnswerBlocked, LimitReached, NoAnswer, ProviderError
from midspan.loop.state import RunState, is_empty, says_nothing
from midspan.types.exchange import Budget, FinishReason, ModelResponse
from midspan.types.messages import Message
from midspan.types.specs import Limits

POLITE_WORDS = "Maximum tool execution iterations reached. Please try breaking down your request."


class Again(Struct, frozen=True):
    """Ask the model once more, having told it this."""

    reason: str
    words: str | None = None

    @property
    def message(self) -> Message | None:
        return None if self.words is None else Message.user(self.words)


def verdict(answer: ModelResponse, state: RunState, *, calls_only: bool = False) -> Again | None:
    """What to do after a turn without calls: nothing, because it is the answer, or ask again; raises if in vain."""
    again = _again(answer, after_results=bool(state.tool_runs))
    if again is None and calls_only:
        again = Again("the model answered in words", "Do not answer in words. Call one of your functions.")
    if again is None or not state.has_missed_enough:
        return again
    if answer.finish_reason is FinishReason.END and not is_empty(answer.message) and not calls_only:
        return None  # something that we cannot read is all that there is to be had
    raise NoAnswer(f"{again.reason}, {state.misses + 1} times in a row")


def _again(answer: ModelResponse, *, after_results: bool) -> Again | None:
    said = f": {answer.finish_message}" if answer.finish_message else ""
    empty = says_nothing(answer.message)
    match answer.finish_reason:
        case FinishReason.CUT:
            return Again("the answer was cut off on its way")
        case FinishReason.MALFORMED_CALL:
            return Again(
                f"the model made a malformed call{said}",
                f"Your last function call could not be read{said}. "
                "Make it again, with arguments as valid JSON of the declared schema; or answer in words.",
            )
        case FinishReason.UNEXPECTED_CALL:
            return Again(
                f"the model made a call that it may not make{said}",
                "You tried to call a function that cannot be called now. Answer in words, with what you know.",
            )
        case FinishReason.CONTINUES:
            return Again("the model did not come to an end", "Go on exactly where you stopped.")
        case FinishReason.LENGTH if empty:
            raise NoAnswer("the model had used up its tokens before it said anything; raise max_tokens in the settings")
        case FinishReason.CONTEXT_FULL if empty:
            raise NoAnswer("the context window was full before the model said anything; shorten the conversation")
    if not empty:
        return None
    if after_results:
        return Again(
            "the model said nothing after the results",
            "You have the results of your calls. Answer the question with them now, or make the next call.",
        )
    return Again("the model said nothing", "You said nothing. Answer, please.")


INCOMPLETE = frozenset((FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED))
"""How a turn ends whose last call may lack some of its arguments."""


def is_blocked(answer: ModelResponse) -> bool:
    """Whether a turn gives no answer and never will: a filter stopped it, or the model declined without a word."""
    if answer.finish_reason is FinishReason.REFUSED:
        return says_nothing(answer.message)
    return answer.finish_reason is FinishReason.BLOCKED


def blocked(answer: ModelResponse) -> AnswerBlocked:
    """The error for a turn that a filter ended; nothing in it is done, and asking again would not help."""
    said = f": {answer.finish_message}" if answer.finish_message else ""
    word = f" ({answer.raw_finish_reason})" if answer.raw_finish_reason else ""
    return AnswerBlocked(f"the model was stopped by a filter{word}{said}", answer.raw_finish_reason)


def broken_off(fault: ProviderError | None) -> ModelResponse:
    """A response that was cut. The requests of it that were complete count, and so do their tokens."""
    whole = None if fault is None else fault.partial_response
    return CUT if whole is None else replace(CUT, usage=whole.usage, requests=whole.requests + 1)


CUT = ModelResponse(Message("model", ()), FinishReason.CUT)


def out_of_time(limits: Limits, fault: ProviderError | None = None) -> LimitReached:
    """`fault` is why the time was used up, where that is known."""
    why = "" if fault is None else f"; the last try failed: {fault}"
    reached = LimitReached(f"Maximum run time exceeded ({limits.max_seconds:g} seconds){why}", "max_seconds")
    reached.__cause__ = fault
    return reached


class Bounds:
    """The limits of one run, looked at while it goes on; `free` are tools that no limit counts."""

    def __init__(self, limits: Limits, *, free: Collection[str], begun: float) -> None:
        self.limits = limits
        self._free = free
        self._begun = begun
        self.is_timeless = limits.max_seconds is None
        """There is no clock to be watched."""
        self._fault: ProviderError | None = None
        """What the model's service failed with when the time was over and it was to be tried again."""
        self._counts_calls = limits.max_tool_calls is not None or limits.max_calls_per_tool is not None

    def seconds_left(self) -> float | None:
        most = self.limits.max_seconds
        return None if most is None else self._begun + most - monotonic()

    def out_of_time(self) -> LimitReached | None:
        most = self.limits.max_seconds
        if most is None or monotonic() - self._begun < most:
            return None
        return out_of_time(self.limits, self._fault)

    def note(self, over: BaseException) -> None:
        """Look into the end of the time for what used it up."""
        cause: BaseException | None = over
        while cause is not None and not isinstance(cause, ProviderError):
            cause = cause.__cause__
        self._fault = cause

    def budget(self, state: RunState) -> Budget:
        """What is left for the request that is about to be made; for one there always is."""
        turns, tokens = self.limits.max_turns, self.limits.max_tokens
        return Budget(
            None if turns is None else max(1, turns - state.requests + 1),
            None if tokens is None else tokens - state.usage.total,
        )

    def reached(self, state: RunState) -> LimitReached | None:
        """The limit that keeps the run from going on with these calls, or with another question."""
        limits = self.limits
        if limits.max_turns is not None and state.requests >= limits.max_turns:
            return LimitReached("Maximum tool-calling turns exceeded", "max_turns")
        if limits.max_tokens is not None and state.usage.total >= limits.max_tokens:
            used = f"{state.usage.total:,} of {limits.max_tokens:,}"
            return LimitReached(f"Maximum tokens exceeded ({used})", "max_tokens")
        return self.out_of_time() or (next(iter(self.beyond(state).values()), None) if self._counts_calls else None)

    def beyond(self, state: RunState) -> dict[int, LimitReached]:
        """Of the calls that wait, the places of those that may not be run any more, each with its limit."""
        limits = self.limits
        counted = Counter(run.name for run in (*state.tool_runs, *state.ended) if run.name not in self._free)
        beyond: dict[int, LimitReached] = {}
        for place, call in enumerate(state.waiting if self._counts_calls else ()):
            most = limits.calls_of(call.name)
            if call.name in self._free:
                continue
            if limits.max_tool_calls is not None and counted.total() >= limits.max_tool_calls:
                words = f"Maximum tool calls exceeded ({limits.max_tool_calls})"
                beyond[place] = LimitReached(words, "max_tool_calls")
            elif most is not None and counted[call.name] >= most:
                words = f"Maximum calls of {call.name} exceeded ({most})"
                beyond[place] = LimitReached(words, "max_calls_per_tool")
            else:
                counted[call.name] += 1
        return beyond
