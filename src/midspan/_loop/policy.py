"""Policies: the rules of a run, and how what they say is merged.

The run asks, decides and acts; it has no rules of its own. Each rule is a policy. What a policy remembers is derived
from the RunState, so a run that is restored from its events continues under the same rules.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.state import MAX_FAILED_TURNS, RunState, has_no_answer, is_empty
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import AnyTool, ToolChoice, ToolSpec
from midspan.errors import AnswerBlocked, MidspanError, NoAnswer, ProviderError
from midspan.tools.source import FORBIDDEN, UNREADABLE


class Changes(Struct, frozen=True, gc=False):
    """What a policy changes about the next request."""

    answer_only: bool = False
    """The model may only answer. The tools stay declared, because the history refers to them."""
    forces_call: bool = False
    """The caller's tool choice applies: the model has to make a call."""


class Retry(Struct, frozen=True, gc=False):
    """Ask the model again."""

    reason: str
    text: str | None = None
    """What to tell the model first; None repeats the request."""

    @property
    def message(self) -> Message | None:
        return None if self.text is None else Message.user(self.text)


class Fail(Struct, frozen=True, gc=False):
    """End the run with an error."""

    error: MidspanError


Verdict = Retry | Fail | None
"""None accepts the response."""


class Refusal(Struct, frozen=True, gc=False):
    """Why a call is not run."""

    message: str
    """What the model reads, after the name of the tool."""
    note: str
    """The kind of refusal, one of the constants in `midspan.tools.error_results`."""
    limit: str | None = None
    """The limit that forbids the call, if that is the reason."""


class Policy(Protocol):
    """One rule of a run. Inherit from it to implement only some of the methods."""

    def request(self, state: RunState) -> Changes:  # noqa: ARG002 - the default
        """Return the changes to the next request."""
        return NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - the default
        """Judge a response. The state already includes it."""
        return None

    def refuse(self, state: RunState, calls: "Calls") -> "Refusals":  # noqa: ARG002 - the default
        """Return the calls that must not run. Calls that an earlier policy refused are not asked about."""
        return {}

    def hint(self, state: RunState, call: ToolCall, result: ToolResult) -> str | None:  # noqa: ARG002 - the default
        """Return a note for the model beside the result of a call."""
        return None


Calls = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the turn."""
Refusals = dict[int, Refusal]
"""By the position of the call in the turn."""
NO_CHANGES = Changes()


def calls_to_count(calls: Calls, refusals: Refusals) -> Calls:
    """Return the calls that limits count: those that no other rule refuses."""
    return [(index, call) for index, call in calls if index not in refusals or refusals[index].limit is not None]


class Policies:
    """All policies of a run, in the order of their precedence."""

    def __init__(self, *policies: Policy) -> None:
        requests, verdicts, refusers, hints = _implementers(tuple(map(type, policies)))
        self._requesting = [policies[position] for position in requests]
        self._judging = [policies[position] for position in verdicts]
        self._refusing = [policies[position] for position in refusers]
        self._hinting = [policies[position] for position in hints]

    def request(self, state: RunState) -> Changes:
        """Merge the changes. A model that may only answer is not forced to make a call."""
        forced = NO_CHANGES
        for policy in self._requesting:
            changes = policy.request(state)
            if changes is NO_CHANGES:
                continue
            if changes.answer_only:
                return changes
            forced = changes
        return forced

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        """Return the first verdict that does not accept the response."""
        for policy in self._judging:
            verdict = policy.after_response(state, response)
            if verdict is not None:
                return verdict
        return None

    def refuse(self, state: RunState) -> Refusals:
        """Return all refusals. Every policy is asked about every call that no other policy has refused."""
        calls: Calls = state.unanswered
        refusals: Refusals = {}
        for policy in self._refusing:
            refused = policy.refuse(state, calls)
            if refused:
                refusals |= refused
                calls = [item for item in calls if item[0] not in refused]
        return refusals

    def hint(self, state: RunState, call: ToolCall, result: ToolResult) -> str | None:
        """Return the first note for the model."""
        for policy in self._hinting:
            hint = policy.hint(state, call, result)
            if hint is not None:
                return hint
        return None


@cache
def _implementers(kinds: tuple[type[Policy], ...]) -> list[list[int]]:
    """For each method of a policy, the positions of the policies that implement it. Most implement one or two."""
    methods = ("request", "after_response", "refuse", "hint")
    return [
        [at for at, kind in enumerate(kinds) if getattr(kind, name) is not getattr(Policy, name)] for name in methods
    ]


_FORCED = Changes(forces_call=True)
_FORBIDDEN = "is not available now. Answer with the information you have."


class ToolChoicePolicy(Policy):
    """Forces a call until one was run, and refuses calls that the tool choice of their request does not allow."""

    def __init__(self, *, forces_call: bool) -> None:
        self._forces_call = forces_call

    def request(self, state: RunState) -> Changes:
        is_forced = self._forces_call and not state.has_run_call and state.turn <= MAX_FAILED_TURNS
        return _FORCED if is_forced else NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        choice = state.tool_choice
        if choice is None or not state.calls or state.forbidden_turns < _max_forbidden_turns(choice):
            return None
        if len(_forbidden(choice, state.unanswered)) < len(state.calls):
            return None
        return Fail(NoAnswer("the model only makes calls that it may not make, and gives no answer"))

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        return {} if state.tool_choice is None else _forbidden(state.tool_choice, calls)


class ApprovalPolicy(Policy):
    """Refuses calls of tools that need the approval of a person: a run has nobody to ask."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._names = frozenset(spec.name for spec in specs if spec.needs_approval)

    def refuse(self, state: RunState, calls: Calls) -> Refusals:  # noqa: ARG002 - of the policy
        return {index: _NEEDS_APPROVAL for index, call in calls if call.name in self._names}


_NEEDS_APPROVAL = Refusal("was not run: it needs the approval of a person, and nobody can be asked", FORBIDDEN)


def _max_forbidden_turns(choice: ToolChoice) -> int:
    """A model that has to call a certain tool gets more chances than one that only has to answer."""
    return 1 if choice.mode == "none" else 1 + MAX_FAILED_TURNS


def _forbidden(choice: ToolChoice, calls: Calls) -> Refusals:
    if choice.mode == "none":
        return {index: Refusal(_FORBIDDEN, FORBIDDEN) for index, _ in calls}
    if choice.mode != "any" or not choice.names:
        return {}
    refusal = Refusal(f"is not available now; call {' or '.join(choice.names)}", FORBIDDEN)
    return {index: refusal for index, call in calls if call.name not in choice.names}


NO_RESPONSE = ModelResponse(Message("model", ()), FinishReason.CUT)
"""Stands for a response that broke off before its end."""


class ResponsePolicy(Policy):
    """Asks again after malformed, empty, cut and unexpected responses, at most MAX_FAILED_TURNS times in a row."""

    def __init__(self, *, calls_only: bool) -> None:
        self._calls_only = calls_only

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        reason = response.finish_reason
        if reason is FinishReason.BLOCKED or (reason is FinishReason.REFUSED and has_no_answer(response.message)):
            return Fail(_blocked(response))
        if state.calls:
            return None
        retry = _retry(response, after_results=bool(state.tool_runs))
        # A model that was asked for its answer may give it in words after all.
        calls_only = self._calls_only and not state.tools_withdrawn
        if retry is None and calls_only:
            retry = Retry("the model answered with text", "Do not answer with text. Call one of your functions.")
        if retry is None or isinstance(retry, Fail) or not state.retries_exhausted:
            return retry
        if response.finish_reason is FinishReason.END and not is_empty(response.message) and not calls_only:
            return None  # there is content, although none that we can read
        return Fail(NoAnswer(f"{retry.reason}, {state.failed_turns + 1} times in a row"))


def _retry(response: ModelResponse, *, after_results: bool) -> Verdict:
    detail = f": {response.finish_message}" if response.finish_message else ""
    has_text = not has_no_answer(response.message)
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
        case FinishReason.LENGTH if not has_text:
            return Fail(NoAnswer("the model used up its tokens before it answered; raise max_tokens in the settings"))
        case FinishReason.CONTEXT_FULL if not has_text:
            return Fail(NoAnswer("the context window was full before the model answered; shorten the conversation"))
    if has_text:
        return None
    if after_results:
        return Retry(
            "the model said nothing after the results",
            "You have the results of your calls. Answer the question with them now, or make the next call.",
        )
    return Retry("the model said nothing", "Your answer was empty. Answer the question.")


class UnreadableCallPolicy(Policy):
    """Refuses calls whose arguments are not valid JSON, or may be incomplete because the response was cut off."""

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        if state.unreadable_turns < MAX_FAILED_TURNS or len(self.refuse(state, state.unanswered)) < len(state.calls):
            return None
        times = state.unreadable_turns + 1
        return Fail(NoAnswer(f"the model made calls whose arguments cannot be read, {times} times in a row"))

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        refusals: Refusals = {}
        for index, call in calls:
            if call.arguments_error is not None:
                message = f"was not run: {call.arguments_error}. Call it again with valid arguments."
                refusals[index] = Refusal(message, UNREADABLE)
        if calls and state.finish_reason in INCOMPLETE:
            refusals.setdefault(len(state.calls) - 1, _CUT_CALL)
        return refusals


_CUT_CALL = Refusal(
    "was not run: the response was cut off, so the arguments may be incomplete. Call it again, with less text.",
    UNREADABLE,
)
INCOMPLETE = (FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED)


def _blocked(response: ModelResponse) -> AnswerBlocked:
    """Return the error for a response that a filter stopped or the model declined; asking again would not help."""
    detail = f": {response.finish_message}" if response.finish_message else ""
    reason = f" ({response.raw_finish_reason})" if response.raw_finish_reason else ""
    what = (
        "the model declined to answer"
        if response.finish_reason is FinishReason.REFUSED
        else "a filter stopped the model"
    )
    return AnswerBlocked(f"{what}{reason}{detail}", response.raw_finish_reason)


def broken_response(error: ProviderError | None) -> ModelResponse:
    """Return a response that was cut off. Requests that were completed before the error count, with their tokens."""
    partial = None if error is None else error.partial_response
    if partial is None:
        return NO_RESPONSE
    return replace(NO_RESPONSE, usage=partial.usage, requests=partial.requests + 1)


def recover_malformed_call(response: ModelResponse, tools: Sequence[AnyTool]) -> ModelResponse:
    """Return the response with the calls that its `finish_message` quotes. Everything else of the turn stays."""
    if response.finish_reason is not FinishReason.MALFORMED_CALL or not response.finish_message:
        return response
    if response.message.calls:
        return response
    from midspan.providers.prompted.salvage import salvage  # most runs never need it

    calls = salvage(response.finish_message, tuple(tool for tool in tools if isinstance(tool, ToolSpec)))
    if not calls:
        return response
    message = response.message.with_parts((*response.message.parts, *calls))
    return replace(response, message=message, finish_reason=FinishReason.END)
