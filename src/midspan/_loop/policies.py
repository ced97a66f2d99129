"""Policies: the rules of a run, and how their decisions are merged.

The limits (`LimitTracker`) are checked after the policies. All state of a policy can be computed from the RunState;
`LimitTracker` also has the clock and the calls made by tools.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from time import monotonic
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.exchange import END, Budget, FinishReason, ModelResponse
from midspan._types.parts import FORBIDDEN, OVER_LIMIT, UNREADABLE, ToolCall, ToolResult
from midspan._types.run_state import MAX_RETRIES, RunState, has_answer, is_empty
from midspan._types.specs import Limits, ToolChoice, ToolSpec
from midspan._types.texts import count_noun
from midspan.errors import AnswerBlockedError, LimitReachedError, NoAnswerError, ProviderError

LIMIT_MESSAGE = "Maximum tool execution iterations reached. Please try breaking down your request."
"""The answer of a run that reached a limit with `on_limit="message"`."""


class Retry(Struct, frozen=True, gc=False):
    """Ask the model again."""

    reason: str
    text: str | None = None
    """What to tell the model first; None repeats the request."""


class Refusal(Struct, frozen=True, gc=False):
    """Why a call is not run."""

    message: str
    """What the model reads, after the name of the tool."""
    kind: str
    """The kind of refusal, one of the constants in `_types/parts.py`."""
    limit: str | None = None
    """The limit that forbids the call, if that is the reason."""

    def result(self, call: ToolCall) -> ToolResult:
        """Return the result of the call that is not run."""
        result = call.error_result(f"{call.name} {self.message}", self.kind)
        return result if self.limit is None else replace(result, meta={"limit": self.limit})


Calls = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the turn."""
Refusals = dict[int, Refusal]
"""By the position of the call in the turn."""


class Decision(Struct, frozen=True, gc=False):
    """What happens after a turn: ask again, run the calls that are not refused, or end the run."""

    calls: Calls
    """The calls of the turn that have no result yet."""
    refusals: Refusals
    retry: Retry | None
    limit: str | None
    """The limit that is reached if another request follows, which then allows only an answer."""
    budget: Budget
    """Of the next request, if no limit is reached."""


class Policy(Protocol):
    """One rule of a run. Inherit from it to implement only one of the methods."""

    def after_response(self, state: RunState, response: ModelResponse) -> Retry | None:  # noqa: ARG002 - the default
        """Accept a response (None), ask again, or raise to end the run. The state already includes the response."""
        return None

    def refuse(self, state: RunState, calls: Calls) -> Refusals:  # noqa: ARG002 - the default
        """Return the calls that must not run. `calls` has none that an earlier policy refused."""
        return {}


def decide(policies: Sequence[Policy], tracker: "LimitTracker", state: RunState, response: ModelResponse) -> Decision:
    """Check the response and its calls against the policies, in order, and then against the limits.

    Raises if the run has to stop.
    """
    calls = state.calls
    is_late = tracker.deadline is not None and tracker.out_of_time() is not None
    retry: Retry | None = None
    # If a complete response has calls, `refuse` checks them, and `after_response` has nothing to check.
    if not is_late and not (calls and response.finish_reason is END):
        for policy in policies:
            retry = policy.after_response(state, response)
            if retry is not None:
                break
    unanswered: Calls = state.unanswered if calls else ()
    refusals: Refusals = {}
    allowed = unanswered
    if calls:
        for policy in policies:
            refused = policy.refuse(state, allowed)
            if refused:
                refusals |= refused
                allowed = [item for item in allowed if item[0] not in refused]
        if not allowed and not is_late:
            _check_refused_turns(state, refusals.values())
    limit_error, budget = tracker.next_request(state)
    if limit_error is not None and retry is not None:
        limit_error.__cause__ = NoAnswerError(retry.reason)
    if (calls or retry is not None or is_late) and (limit_error is not None or tracker.may_refuse):
        refusals |= tracker.refuse(state, allowed, limit_error)
    if tracker.ended_with_message:
        retry = None
    return Decision(unanswered, refusals, retry, None if limit_error is None else limit_error.limit, budget)


def _check_refused_turns(state: RunState, refusals: Collection[Refusal]) -> None:
    """Raise NoAnswerError if, for too many turns in a row, the model only makes calls that are refused."""
    if state.refused_turns >= MAX_RETRIES:
        times, refusal = state.refused_turns + 1, next(iter(refusals))
        raise NoAnswerError(
            f"the model only made calls that were refused, {times} times in a row; the last call {refusal.message}"
        )


_NO_BUDGET = Budget()
_NO_CALLS = Refusal("is not available now. Answer with the information you have.", FORBIDDEN)
NEEDS_APPROVAL = Refusal("was not run: it needs the approval of a person, and nobody can be asked", FORBIDDEN)


class ToolChoicePolicy(Policy):
    """Refuses calls that the tool choice of their request does not allow.

    Calls of tools that need the approval of a person are refused too: a run has nobody to ask.
    """

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._need_approval = frozenset(spec.name for spec in specs if spec.needs_approval)

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        choice = state.tool_choice
        if choice is None and state.tools_withdrawn:  # without declared tools, a request for an answer has no choice
            choice = ToolChoice("none")
        refusals: Refusals = {}
        for index, call in calls:
            if call.name in self._need_approval:
                refusals[index] = NEEDS_APPROVAL
            elif choice is not None and choice.mode == "none":
                refusals[index] = _NO_CALLS
            elif choice is not None and choice.names and call.name not in choice.names:
                refusals[index] = Refusal(f"is not available now; call {' or '.join(choice.names)}", FORBIDDEN)
        return refusals


_TRUNCATED_CALL = Refusal(
    "was not run: the response was cut off, so the arguments may be incomplete. Call it again, with less text.",
    UNREADABLE,
)
_TRUNCATED = (FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED)


class ResponsePolicy(Policy):
    """Asks again after malformed, empty, cut and unexpected responses, at most MAX_RETRIES times in a row.

    Refuses calls whose arguments are not valid JSON, or may be incomplete because the response was cut off.
    """

    def __init__(self, *, calls_only: bool) -> None:
        self._calls_only = calls_only

    def after_response(self, state: RunState, response: ModelResponse) -> Retry | None:
        reason = response.finish_reason
        if reason is FinishReason.BLOCKED or (reason is FinishReason.REFUSED and not has_answer(response.message)):
            raise _blocked_error(response)
        if state.calls:
            return None
        # A model that was asked for its answer may answer in text.
        calls_only = self._calls_only and not state.tools_withdrawn
        answers = has_answer(response.message)
        if reason is FinishReason.END and answers and not calls_only:
            return None
        retry = _retry(response, answers=answers)
        if retry is None and calls_only:
            retry = Retry("the model answered with text", "Do not answer with text. Call one of your functions.")
        if retry is None or not state.retries_exhausted:
            return retry
        if reason is FinishReason.END and not is_empty(response.message) and not calls_only:
            return None  # there is content, although none that we can read
        raise NoAnswerError(f"{retry.reason}, {state.failed_turns + 1} times in a row")

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        refusals = {}
        for index, call in calls:
            if call.arguments_error is not None:
                message = f"was not run: {call.arguments_error}. Call it again with valid arguments."
                refusals[index] = Refusal(message, UNREADABLE)
        if state.finish_reason in _TRUNCATED and calls and calls[-1][0] == len(state.calls) - 1:
            refusals.setdefault(calls[-1][0], _TRUNCATED_CALL)
        return refusals


def _retry(response: ModelResponse, *, answers: bool) -> Retry | None:
    detail = f": {response.finish_message}" if response.finish_message else ""
    match response.finish_reason:
        case FinishReason.CUT:
            return Retry("the response was cut off")
        case FinishReason.MALFORMED_CALL:
            return Retry(
                f"the model made a malformed call{detail}",
                f"Your last function call could not be read{detail}. "
                "Make it again with arguments that are valid JSON of the declared schema, or answer.",
            )
        case FinishReason.UNEXPECTED_CALL:
            return Retry(
                f"the model made a call that it may not make{detail}",
                "You tried to call a function that is not available now. Answer with the information you have.",
            )
        case FinishReason.CONTINUES:
            return Retry("the model paused", "Continue exactly where you stopped.")
        case FinishReason.LENGTH if not answers:
            raise NoAnswerError("the model used up its tokens before it answered; raise max_tokens in the settings")
        case FinishReason.CONTEXT_FULL if not answers:
            raise NoAnswerError("the context window was full before the model answered; shorten the conversation")
    if answers:
        return None
    text = "Your answer was empty. Answer the question, with the results of your calls if you have them."
    return Retry("the model returned an empty response", text)


def _blocked_error(response: ModelResponse) -> AnswerBlockedError:
    """Return the error for a response that a filter stopped or the model declined; asking again would not help."""
    is_refused = response.finish_reason is FinishReason.REFUSED
    event = "the model declined to answer" if is_refused else "a filter stopped the model"
    reason = f" ({response.raw_finish_reason})" if response.raw_finish_reason else ""
    detail = f": {response.finish_message}" if response.finish_message else ""
    return AnswerBlockedError(f"{event}{reason}{detail}", response.raw_finish_reason)


class LimitTracker:
    """Compares a run with its limits, and applies `on_limit`.

    `final_tools` are tools whose result may end the run; `uncounted` are tools that no limit counts.
    """

    def __init__(
        self, limits: Limits, started: float, final_tools: Collection[str] = (), uncounted: Collection[str] = ()
    ) -> None:
        self.deadline = None if limits.max_seconds is None else started + limits.max_seconds
        """When the time is over, as a value of `time.monotonic()`."""
        self.nested_calls: list[str] = []
        """The tools that other tools called."""
        self.limits = limits
        self.ended_with_message = False
        """Whether the run ends with LIMIT_MESSAGE."""
        self.pending_limit: LimitReachedError | None = None
        """Ends the run after these calls, unless a final tool ends it first."""
        self._cause: ProviderError | None = None
        """The error of the model's service that used up the time."""
        self._reached: LimitReachedError | None = None
        """The limit that the run reached, if it continues or ends with a message."""
        self._uncounted = uncounted
        self._final_tools = final_tools
        self._counts_calls = limits.max_tool_calls is not None or limits.max_calls_per_tool is not None
        self.may_refuse = self._counts_calls or self.deadline is not None
        """Whether `refuse` can refuse a call although another request may follow."""

    def next_request(self, state: RunState) -> tuple[LimitReachedError | None, Budget]:
        """Return the limit that the next request would exceed, and its budget."""
        turns, tokens = self.limits.max_turns, self.limits.max_tokens
        if turns is None and tokens is None:
            return None, _NO_BUDGET
        requests_left = None if turns is None else turns - state.requests
        tokens_left = None if tokens is None else tokens - state.usage.total
        limit_error = None
        if requests_left is not None and requests_left <= 0:
            limit_error = LimitReachedError("Maximum tool-calling turns exceeded", "max_turns")
        elif tokens_left is not None and tokens_left <= 0:
            limit_error = LimitReachedError(
                f"Maximum tokens exceeded ({state.usage.total:,} of {tokens:,})", "max_tokens"
            )
        return limit_error, Budget(requests_left, tokens_left)

    def refuse(self, state: RunState, calls: Calls, request_limit: LimitReachedError | None) -> Refusals:
        """Refuse calls over a limit. If no request can follow, refuse all calls but those that may end the run.

        `calls` are those that no other rule refuses; `request_limit` is that of `next_request`. Raises
        LimitReachedError if the run has to stop with an error.
        """
        exceeded = self._calls_over_limit(state, calls) if self._counts_calls else {}
        limit_error = request_limit or self.out_of_time() or next(iter(exceeded.values()), None)
        if limit_error is None:
            return {}
        can_end_by_call = False
        # With on_limit="answer" and time left, a request for the answer follows, and the other calls run.
        if self.limits.on_limit != "answer" or state.limit is not None or limit_error.limit == "max_seconds":
            can_end_by_call = any(call.name in self._final_tools and index not in exceeded for index, call in calls)
            exceeded = {index: limit_error for index, call in calls if call.name not in self._final_tools} | exceeded
        if can_end_by_call:
            self.pending_limit = limit_error
        else:
            self._stop_at(limit_error, state)
        return {index: _refusal_over_limit(error) for index, error in exceeded.items()}

    def after_calls(self, state: RunState) -> bool:
        """Apply a limit that no final tool came before; return whether the run ends with LIMIT_MESSAGE."""
        limit_error = self.pending_limit or self.out_of_time()
        self.pending_limit = None
        if limit_error is not None:
            self._stop_at(limit_error, state)
        return self.ended_with_message

    def _stop_at(self, limit_error: LimitReachedError, state: RunState) -> None:
        """Apply `on_limit`: raise the error, end with a message, or continue to the request for the answer."""
        on_limit = self.limits.on_limit
        was_asked_to_answer = state.limit is not None and state.tools_withdrawn
        if on_limit == "error" or (on_limit == "answer" and was_asked_to_answer):
            raise self._reached or limit_error
        self._reached = limit_error
        # When the time is over, no further request is possible.
        self.ended_with_message = on_limit == "message" or limit_error.limit == "max_seconds"

    def final_limit(self, state: RunState) -> str | None:
        """Return the name of the limit that the run reached, for its end."""
        if self._reached is not None:
            return self._reached.limit
        return state.limit if state.tools_withdrawn else None

    def refuse_nested(self, state: RunState, call: ToolCall) -> Refusal | None:
        """Return why a call that a tool makes is over a limit; the calls that run now count too."""
        limit_error = self.out_of_time()
        if limit_error is None and self._counts_calls:
            limit_error = self._call_limit(self._call_counts(state, state.unanswered), call)
        return None if limit_error is None else _refusal_over_limit(limit_error)

    def _calls_over_limit(self, state: RunState, calls: Calls) -> dict[int, LimitReachedError]:
        counts = self._call_counts(state)
        exceeded: dict[int, LimitReachedError] = {}
        for index, call in calls:
            if call.name in self._uncounted:
                continue
            limit_error = self._call_limit(counts, call)
            if limit_error is None:
                counts[call.name] += 1
            else:
                exceeded[index] = limit_error
        return exceeded

    def _call_counts(self, state: RunState, running: Calls = ()) -> Counter[str]:
        """Return how often each tool was run, by the model or by another tool."""
        counts = Counter(tool_run.name for tool_run in (*state.tool_runs, *state.ended) if tool_run.was_run)
        counts.update(self.nested_calls)
        counts.update(call.name for _, call in running)
        for name in self._uncounted:
            del counts[name]
        return counts

    def _call_limit(self, counts: Counter[str], call: ToolCall) -> LimitReachedError | None:
        limits = self.limits
        if limits.max_tool_calls is not None and counts.total() >= limits.max_tool_calls:
            return LimitReachedError(f"Maximum tool calls exceeded ({limits.max_tool_calls})", "max_tool_calls")
        per_tool = limits.max_calls_per_tool
        maximum = per_tool.get(call.name) if isinstance(per_tool, dict) else per_tool
        if maximum is not None and counts[call.name] >= maximum:
            return LimitReachedError(f"Maximum calls of {call.name} exceeded ({maximum})", "max_calls_per_tool")
        return None

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - monotonic()

    def out_of_time(self) -> LimitReachedError | None:
        if self.deadline is None or monotonic() < self.deadline:
            return None
        return time_limit_error(self.limits, self._cause)

    def record_expiry(self, expired: BaseException) -> None:
        """Note that the time is over, and which error of the model's service used it up."""
        self.deadline = monotonic()  # the timer may be a little earlier than this clock
        cause: BaseException | None = expired
        while cause is not None and not isinstance(cause, ProviderError):
            cause = cause.__cause__
        self._cause = cause


def time_limit_error(limits: Limits, cause: ProviderError | None = None) -> LimitReachedError:
    """Return the error for a run whose time is over. `cause` is the error that used it up, if it is known."""
    reason = "" if cause is None else f"; the last attempt failed: {cause}"
    duration = count_noun(limits.max_seconds or 0, "second")
    error = LimitReachedError(f"Maximum run time exceeded ({duration}){reason}", "max_seconds")
    error.__cause__ = cause
    return error


def _refusal_over_limit(error: LimitReachedError) -> Refusal:
    return Refusal(f"was not run: {error}", OVER_LIMIT, error.limit)
