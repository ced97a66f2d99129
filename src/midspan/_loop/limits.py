"""The limits of a run: turns, tokens, time and calls."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from time import monotonic

from midspan._loop.policies import NO_CHANGES, Calls, Changes, Refusal, Refusals
from midspan._types.exchange import Budget
from midspan._types.parts import OVER_LIMIT, ToolCall
from midspan._types.run_state import RunState, ToolRun
from midspan._types.specs import Limits
from midspan.errors import LimitReached, ProviderError

LIMIT_MESSAGE = "Maximum tool execution iterations reached. Please try breaking down your request."
"""The answer of a run that reached a limit with `on_limit="message"`."""


class LimitTracker:
    """Compares a run with its limits, and applies `on_limit`.

    `uncounted` are tools that no limit counts; `finals` are tools whose result may end the run.
    """

    def __init__(
        self, limits: Limits, *, started: float, uncounted: Collection[str] = (), finals: Collection[str] = ()
    ) -> None:
        self.deadline = None if limits.max_seconds is None else started + limits.max_seconds
        """When the time is over, as a value of `time.monotonic()`."""
        self.ended_with_message = False
        """Whether the run ends with LIMIT_MESSAGE."""
        self.last_chance: LimitReached | None = None
        """The limit that stops the run unless one of the calls that run now ends it."""
        self.nested_calls: list[str] = []
        """The tools that other tools called."""
        self.limits = limits
        self._uncounted = uncounted
        self._finals = finals
        self._counts_calls = limits.max_tool_calls is not None or limits.max_calls_per_tool is not None
        self._cause: ProviderError | None = None
        """The error of the model's service that used up the time."""
        self._has_expired = False
        self._first_error: LimitReached | None = None
        """The limit that the run reached, if it continues or ends with a message."""
        self._counts: Counter[str] = Counter()
        """Calls by tool, over the completed turns that were seen so far."""
        self._seen = 0

    def request(self, state: RunState) -> Changes:
        """Return the budget of the next request. After a limit, the model is only asked for its answer."""
        limit = state.limit
        if limit is None and (error := self._of_requests(state)) is not None:
            limit = error.limit
        if limit is not None:
            return Changes(answer_only=True, limit=limit)
        turns, tokens = self.limits.max_turns, self.limits.max_tokens
        if turns is None and tokens is None:
            return NO_CHANGES
        budget = Budget(
            None if turns is None else max(1, turns - state.requests),
            None if tokens is None else tokens - state.usage.total,
        )
        return Changes(budget=budget)

    def check(self, state: RunState, calls: Calls) -> Refusals:
        """Refuse calls over a limit, and all calls but those that may end the run if no request can follow them.

        `calls` are those that no other rule refuses. Raises LimitReached if the run has to stop with an error.
        """
        over = self._calls_over_limit(state, calls) if self._counts_calls else {}
        limit = self._of_requests(state) or self.out_of_time() or next(iter(over.values()), None)
        if limit is None:
            return {}
        can_end_by_call = False
        if self.limits.on_limit != "answer" or state.limit is not None:  # otherwise a request for the answer follows
            can_end_by_call = any(call.name in self._finals and index not in over for index, call in calls)
            over = {index: limit for index, call in calls if call.name not in self._finals} | over
        if can_end_by_call:
            self.last_chance = limit
        else:
            self._stop_at(limit, state)
        return {index: _refusal(error) for index, error in over.items()}

    def after_calls(self, state: RunState) -> bool:
        """Return whether the run ends with LIMIT_MESSAGE now that no call has ended it. Raises LimitReached."""
        limit, self.last_chance = self.last_chance or self.out_of_time(), None
        if limit is not None:
            self._stop_at(limit, state)
        return self.ended_with_message

    def _stop_at(self, limit: LimitReached, state: RunState) -> None:
        """Apply `on_limit`: raise the error, end with a message, or continue to the request for the answer."""
        on_limit = self.limits.on_limit
        if on_limit == "error" or (state.limit is not None and state.tools_withdrawn):
            raise self._first_error or limit
        self._first_error = limit
        # When the time is over, no further request is possible.
        self.ended_with_message = on_limit == "message" or limit.limit == "max_seconds"

    def final_limit(self, state: RunState) -> str | None:
        """Return the name of the limit that the run reached, for its end."""
        if self._first_error is not None:
            return self._first_error.limit
        return state.limit if state.tools_withdrawn else None

    def refuse_nested(self, state: RunState, call: ToolCall) -> Refusal | None:
        """Return why a call that a tool makes is over a limit; the calls that run now count too."""
        limit = self.out_of_time()
        if limit is None and self._counts_calls:
            counts = self._call_counts(state)
            counts.update(item.name for _, item in state.unanswered if item.name not in self._uncounted)
            limit = self._call_limit(counts, call)
        return None if limit is None else _refusal(limit)

    def _of_requests(self, state: RunState) -> LimitReached | None:
        limits = self.limits
        if limits.max_turns is not None and state.requests >= limits.max_turns:
            return LimitReached("Maximum tool-calling turns exceeded", "max_turns")
        if limits.max_tokens is not None and state.usage.total >= limits.max_tokens:
            used = f"{state.usage.total:,} of {limits.max_tokens:,}"
            return LimitReached(f"Maximum tokens exceeded ({used})", "max_tokens")
        return None

    def _calls_over_limit(self, state: RunState, calls: Calls) -> dict[int, LimitReached]:
        counts = self._call_counts(state)
        over: dict[int, LimitReached] = {}
        for index, call in calls:
            if call.name in self._uncounted:
                continue
            limit = self._call_limit(counts, call)
            if limit is None:
                counts[call.name] += 1
            else:
                over[index] = limit
        return over

    def _call_counts(self, state: RunState) -> Counter[str]:
        self._counts.update(self._counted(state.tool_runs[self._seen :]))
        self._seen = len(state.tool_runs)
        counts = self._counts.copy()
        counts.update(self._counted(state.ended))
        counts.update(self.nested_calls)
        return counts

    def _counted(self, runs: Iterable[ToolRun]) -> Iterator[str]:
        return (run.name for run in runs if run.name not in self._uncounted and run.was_run)

    def _call_limit(self, counts: Counter[str], call: ToolCall) -> LimitReached | None:
        limits = self.limits
        if limits.max_tool_calls is not None and counts.total() >= limits.max_tool_calls:
            return LimitReached(f"Maximum tool calls exceeded ({limits.max_tool_calls})", "max_tool_calls")
        maximum = limits.calls_of(call.name)
        if maximum is not None and counts[call.name] >= maximum:
            return LimitReached(f"Maximum calls of {call.name} exceeded ({maximum})", "max_calls_per_tool")
        return None

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - monotonic()

    def out_of_time(self) -> LimitReached | None:
        if self.deadline is None or (monotonic() < self.deadline and not self._has_expired):
            return None
        return out_of_time(self.limits, self._cause)

    def note_expiry(self, expired: BaseException) -> None:
        """Note that the time is over, and which error of the model's service used it up."""
        self._has_expired = True
        cause: BaseException | None = expired
        while cause is not None and not isinstance(cause, ProviderError):
            cause = cause.__cause__
        self._cause = cause


def out_of_time(limits: Limits, cause: ProviderError | None = None) -> LimitReached:
    """Return the error for a run whose time is over. `cause` is the error that used it up, if it is known."""
    why = "" if cause is None else f"; the last attempt failed: {cause}"
    error = LimitReached(f"Maximum run time exceeded ({limits.max_seconds:g} seconds){why}", "max_seconds")
    error.__cause__ = cause
    return error


def _refusal(limit: LimitReached) -> Refusal:
    return Refusal(f"was not run: {limit}", OVER_LIMIT, limit.limit)
