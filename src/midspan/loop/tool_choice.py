"""Calls that are forced by the caller's tool choice, and calls that the model may not make."""

from collections.abc import Mapping

from midspan.errors import NoAnswer
from midspan.loop.policy import NO_CHANGES, Calls, Changes, Fail, Policy, Refusal, Refusals, Verdict
from midspan.loop.state import MAX_FAILED_TURNS, RunState
from midspan.tools.error_results import FORBIDDEN
from midspan.types.exchange import ModelResponse
from midspan.types.specs import ToolChoice, ToolSpec

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

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self._names = frozenset(name for name, spec in specs.items() if spec.needs_approval)

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
