"""The caller's tool choice: calls that are forced, and calls that the model may not make."""

from midspan.errors import NoAnswer
from midspan.loop.policy import NO_CHANGES, Calls, Changes, Fail, Policy, Refusal, Refusals, Verdict
from midspan.loop.state import MAX_FAILED_TURNS, RunState
from midspan.tools.error_results import FORBIDDEN
from midspan.types.exchange import ModelResponse
from midspan.types.specs import ToolChoice

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
