"""Policies: the rules of a run, and how what they say is merged.

The run asks, decides and acts; it has no rules of its own. Each rule is a policy. What a policy remembers is derived
from the RunState, so a run that is restored from its events continues under the same rules.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from midspan._types.exchange import Budget, FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import FORBIDDEN, REPEATED, UNREADABLE, ToolCall, ToolResult
from midspan._types.run_state import MAX_FAILED_TURNS, RunState, ToolRun, has_no_answer, is_empty
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import AnswerBlocked, MidspanError, NoAnswer

if TYPE_CHECKING:
    from midspan._loop.limits import LimitTracker

UNLIMITED = Budget()


class Changes(Struct, frozen=True, gc=False):
    """What a policy changes about the next request."""

    answer_only: bool = False
    """The model may only answer. The tools stay declared, because the history refers to them."""
    forces_call: bool = False
    """The caller's tool choice applies: the model has to make a call."""
    limit: str | None = None
    """The limit because of which the model may only answer."""
    budget: Budget = UNLIMITED


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
    """The kind of refusal, one of the constants in `_types/parts.py`."""
    limit: str | None = None
    """The limit that forbids the call, if that is the reason."""


Calls = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the turn."""
Refusals = dict[int, Refusal]
"""By the position of the call in the turn."""
NO_CHANGES = Changes()


class Policy(Protocol):
    """One rule of a run. Inherit from it to implement only some of the methods."""

    def request(self, state: RunState) -> Changes:  # noqa: ARG002 - the default
        """Return the changes to the next request."""
        return NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - the default
        """Judge a response. The state already includes it."""
        return None

    def refuse(self, state: RunState, calls: Calls) -> Refusals:  # noqa: ARG002 - the default
        """Return the calls that must not run. Calls that an earlier policy refused are not asked about."""
        return {}

    def hint(self, call: ToolCall, result: ToolResult) -> str | None:  # noqa: ARG002 - the default
        """Return a note for the model beside the result of a call."""
        return None


class Policies:
    """All policies of a run, in the order of their precedence. The limits come last."""

    def __init__(self, policies: Sequence[Policy], limits: "LimitTracker") -> None:
        self._policies = policies
        self._limits = limits

    def request(self, state: RunState) -> Changes:
        """Merge the changes. A model that may only answer is not forced to make a call."""
        merged = self._limits.request(state)
        for policy in self._policies:
            changes = policy.request(state)
            if changes is NO_CHANGES or merged.answer_only:
                continue
            forces_call = changes.forces_call or merged.forces_call
            merged = Changes(changes.answer_only, forces_call, merged.limit, merged.budget)
        return merged

    def decide(self, state: RunState, response: ModelResponse) -> tuple[Retry | None, Refusals]:
        """Judge the response and its calls: ask again, or refuse some of the calls. Raises if the run has to stop."""
        limits = self._limits
        is_late = limits.deadline is not None and limits.out_of_time() is not None
        verdict = self._verdict(state, response) if state.turn and not is_late else None
        if isinstance(verdict, Fail):
            raise verdict.error
        if not state.calls and verdict is None and not is_late:
            return None, {}
        calls: Calls = state.unanswered
        refusals: Refusals = {}
        for policy in self._policies if calls else ():
            refused = policy.refuse(state, calls)
            if refused:
                refusals |= refused
                calls = [item for item in calls if item[0] not in refused]
        refusals |= limits.check(state, calls)
        return (None if limits.ended_with_message else verdict), refusals

    def _verdict(self, state: RunState, response: ModelResponse) -> Verdict:
        for policy in self._policies:
            verdict = policy.after_response(state, response)
            if verdict is not None:
                return verdict
        return None

    def hint(self, call: ToolCall, result: ToolResult) -> str | None:
        """Return the first note for the model."""
        for policy in self._policies:
            hint = policy.hint(call, result)
            if hint is not None:
                return hint
        return None


_FORCED = Changes(forces_call=True)
_NO_CALLS = Refusal("is not available now. Answer with the information you have.", FORBIDDEN)
_NEEDS_APPROVAL = Refusal("was not run: it needs the approval of a person, and nobody can be asked", FORBIDDEN)


class ToolChoicePolicy(Policy):
    """Forces a call until one was run, and refuses calls that the tool choice of their request does not allow.

    Calls of tools that need the approval of a person are refused too: a run has nobody to ask.
    """

    def __init__(self, specs: Sequence[ToolSpec], *, forces_call: bool) -> None:
        self._forces_call = forces_call
        self._need_approval = frozenset(spec.name for spec in specs if spec.needs_approval)

    def request(self, state: RunState) -> Changes:
        is_forced = self._forces_call and not state.has_run_call and state.turn <= MAX_FAILED_TURNS
        return _FORCED if is_forced else NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        choice = state.tool_choice
        if choice is None or not state.calls:
            return None
        # A model that has to call a certain tool gets more chances than one that only has to answer.
        max_turns = 1 if choice.mode == "none" else 1 + MAX_FAILED_TURNS
        if state.forbidden_turns < max_turns or len(_forbidden(choice, state.unanswered)) < len(state.calls):
            return None
        return Fail(NoAnswer("the model only makes calls that it may not make, and gives no answer"))

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        refusals = {} if state.tool_choice is None else _forbidden(state.tool_choice, calls)
        if self._need_approval:
            refusals |= {index: _NEEDS_APPROVAL for index, call in calls if call.name in self._need_approval}
        return refusals


def _forbidden(choice: ToolChoice, calls: Calls) -> Refusals:
    if choice.mode == "none":
        return {index: _NO_CALLS for index, _ in calls}
    if choice.mode != "any" or not choice.names:
        return {}
    refusal = Refusal(f"is not available now; call {' or '.join(choice.names)}", FORBIDDEN)
    return {index: refusal for index, call in calls if call.name not in choice.names}


class ResponsePolicy(Policy):
    """Asks again after malformed, empty, cut and unexpected responses, at most MAX_FAILED_TURNS times in a row.

    Refuses calls whose arguments are not valid JSON, or may be incomplete because the response was cut off.
    """

    def __init__(self, *, calls_only: bool) -> None:
        self._calls_only = calls_only

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        reason = response.finish_reason
        if reason is FinishReason.BLOCKED or (reason is FinishReason.REFUSED and has_no_answer(response.message)):
            return Fail(_blocked(response))
        if state.calls:
            return self._after_calls(state)
        retry = _retry(response, after_results=bool(state.tool_runs))
        # A model that was asked for its answer may give it in words after all.
        calls_only = self._calls_only and not state.tools_withdrawn
        if retry is None and calls_only:
            retry = Retry("the model answered with text", "Do not answer with text. Call one of your functions.")
        if retry is None or isinstance(retry, Fail) or not state.retries_exhausted:
            return retry
        if reason is FinishReason.END and not is_empty(response.message) and not calls_only:
            return None  # there is content, although none that we can read
        return Fail(NoAnswer(f"{retry.reason}, {state.failed_turns + 1} times in a row"))

    def _after_calls(self, state: RunState) -> Verdict:
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
        if state.finish_reason in _INCOMPLETE:
            refusals.setdefault(len(state.calls) - 1, _CUT_CALL)
        return refusals


_CUT_CALL = Refusal(
    "was not run: the response was cut off, so the arguments may be incomplete. Call it again, with less text.",
    UNREADABLE,
)
_INCOMPLETE = (FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED)


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


def _blocked(response: ModelResponse) -> AnswerBlocked:
    """Return the error for a response that a filter stopped or the model declined; asking again would not help."""
    is_refused = response.finish_reason is FinishReason.REFUSED
    what = "the model declined to answer" if is_refused else "a filter stopped the model"
    reason = f" ({response.raw_finish_reason})" if response.raw_finish_reason else ""
    detail = f": {response.finish_message}" if response.finish_message else ""
    return AnswerBlocked(f"{what}{reason}{detail}", response.raw_finish_reason)


_NOTE_FROM = 3
"""The repetition from which on the model gets a note."""
_NOTE = "This call has given the same result {count} times in a row. Repeat it only if you expect another result."
_REPEATED = (
    "was not run again: the same call has given the same result {count} times in a row. "
    "Answer with the information you have, or make another call."
)
_CallKey = tuple[str, bytes]


class _Repetition(Struct):
    """How often a call was made in a row with the same result."""

    result: ToolResult
    count: int
    epoch: int
    """The number of changes before the count started; after another change it starts anew."""


class LoopDetector(Policy):
    """Detects a model that repeats the same call with the same result. A result is never made up.

    A repeated call is run. From the third time on the model gets a note beside the result; after `max_repeats` times
    the call is refused, and if the model still repeats it, the tools are withdrawn. A different result, or a change in
    between, resets the count. A call counts as a change if its tool declares to write, or declares nothing and gave a
    new result. A read-only call shows a change if it gives another result than before.
    """

    def __init__(self, max_repeats: int | None, specs: Mapping[str, ToolSpec]) -> None:
        self._max_repeats = max_repeats
        self._specs = specs
        self._seen = 0
        """How many of the state's tool runs are counted."""
        self._known: dict[_CallKey, _Repetition] = {}
        self._keys: dict[int, _CallKey] = {}
        """The keys of the calls of the turn, by the identities of their objects."""
        self._epoch = 0
        self._refused_turns = 0
        """Turns since the last change in which a repeated call was refused."""

    def request(self, state: RunState) -> Changes:
        self._update(state)
        return Changes(answer_only=True) if self._refused_turns > 1 else NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        if self._refused_turns > 2 and state.calls:
            return Fail(NoAnswer("the model repeats the same calls forever and gives no answer"))
        return None

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        maximum = self._max_repeats
        if maximum is None or not state.tool_runs:
            return {}
        self._update(state)
        self._keys = {id(call): (call.name, _canonical(call.arguments)) for _, call in calls}
        refusals: Refusals = {}
        for index, call in calls:
            known = self._known_repetition(call)
            if known is not None and known.count >= maximum:
                refusals[index] = Refusal(_REPEATED.format(count=known.count), REPEATED)
        return refusals

    def hint(self, call: ToolCall, result: ToolResult) -> str | None:
        known = self._known_repetition(call)
        if known is None or known.count < _NOTE_FROM - 1 or not _looks_the_same(known.result, result):
            return None
        return _NOTE.format(count=known.count + 1)

    def _known_repetition(self, call: ToolCall) -> _Repetition | None:
        """Return how often a call of this turn was made before, since the last change."""
        key = self._keys.get(id(call))
        known = None if key is None else self._known.get(key)
        if known is None or known.epoch != self._epoch:
            return None
        spec = self._specs.get(call.name)
        return None if spec is not None and spec.repeatable else known

    def _update(self, state: RunState) -> None:
        """Count the calls that were completed since the last time."""
        runs = state.tool_runs
        if self._max_repeats is None or self._seen == len(runs):
            return
        turn: list[ToolRun] = []
        for run in runs[self._seen :]:
            if turn and run.index <= turn[-1].index:  # the positions start again in each turn
                self._add_turn(turn)
                turn = []
            turn.append(run)
        self._add_turn(turn)
        self._seen = len(runs)

    def _add_turn(self, runs: list[ToolRun]) -> None:
        notes = {note for run in runs for note in run.result.notes}
        if REPEATED in notes or (FORBIDDEN in notes and self._refused_turns):
            self._refused_turns += 1
        for run in runs:
            if not notes or (REPEATED not in run.result.notes and FORBIDDEN not in run.result.notes):
                self._add(run)

    def _add(self, run: ToolRun) -> None:
        call = run.call
        key = self._keys.get(id(call)) or (call.name, _canonical(call.arguments))
        known = self._known.get(key)
        is_repeated = known is not None and _looks_the_same(known.result, run.result)
        spec = self._specs.get(call.name)
        writes = None if spec is None else spec.changes
        shows_change = not is_repeated and (writes is None or (known is not None and not writes))
        if shows_change or (writes and not run.is_error):
            self._epoch += 1
            self._refused_turns = 0
            continues = known is not None and known.epoch == self._epoch - 1
        else:
            continues = known is not None and known.epoch == self._epoch
        count = known.count + 1 if known is not None and is_repeated and continues else 1
        self._known[key] = _Repetition(run.result, count, self._epoch)


def _looks_the_same(result: ToolResult, other: ToolResult) -> bool:
    """Whether the model cannot tell two results apart."""
    if result.is_error is not other.is_error:
        return False
    return _canonical([result.value, result.content]) == _canonical([other.value, other.content])


def _canonical(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; 3.0 and 3 are one number, and models write both."""
    try:
        encoded = _encode(value)
        return _encode(_with_integers(msgspec.json.decode(encoded))) if b".0" in encoded else encoded
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "backslashreplace")  # not JSON, which only a faulty provider sends


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


_encode = msgspec.json.Encoder(order="deterministic").encode
