"""Turns in their order: a call after the user, its results right after it, one for each, and the user last."""

from collections.abc import Sequence

from wasat.emulator.families import Family
from wasat.emulator.refusal import invalid
from wasat.emulator.turns import Call, Count, Result, Turn

WRONG_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
CALLS_OUT_OF_ORDER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESULTS_OUT_OF_ORDER = "Please ensure that function response turn comes immediately after a function call turn."
MODEL_LAST = "Requests ending with a model turn are not supported."
WRONG_ID = "functionResponse.id does not match functionCall.id"
WRONG_NAME = "functionResponse.name does not match functionCall.name"


def check_turns(contents: Sequence[Turn], count: Count, family: Family, since: int = 0) -> None:
    """Contents in their order; those before `since` were accepted before, as a whole."""
    if family.neighbours_are_one_turn or count.own_results:
        contents, since = _joined(contents, family), 0
    waiting: Turn | None = None
    before = contents[since - 1].role if since else "model"
    for turn in contents[since:] if since else contents:
        if waiting is not None:
            _check_answered(waiting, turn, family)
        elif turn.results and turn.role == "user":
            raise invalid(RESULTS_OUT_OF_ORDER)
        if turn.calls and before == "model":
            raise invalid(CALLS_OUT_OF_ORDER)
        waiting = turn if turn.open_calls > 0 else None
        before = turn.role
    if waiting is not None:
        raise invalid(WRONG_COUNT)
    if before == "model" and not family.prefill:
        raise invalid(MODEL_LAST)


def _joined(contents: Sequence[Turn], family: Family) -> Sequence[Turn]:
    """Turns of which the family takes several contents for one."""
    turns: list[Turn] = []
    for content in contents:
        # What the server ran itself stands in the model's own turn, which a client may have cut by its chunks.
        if turns and turns[-1].role == content.role and (family.neighbours_are_one_turn or content.role == "model"):
            turns[-1] = turns[-1].joined(content)
        else:
            turns.append(content)
    return turns


def _check_answered(asked: Turn, turn: Turn, family: Family) -> None:
    if turn.role == "user" and not turn.results and family.unanswered_calls:
        return
    if turn.role == "model" and turn.calls:
        raise invalid(CALLS_OUT_OF_ORDER)
    if turn.role == "model" or len(turn.results) != asked.open_calls:
        raise invalid(WRONG_COUNT)
    if family.ids_match:
        _check_ids(asked.calls, turn.results)


def _check_ids(calls: Sequence[Call], results: Sequence[Result]) -> None:
    """Each result answers another one of the calls; one without an id is found by its name."""
    if len(calls) == len(results) == 1 and calls[0].id == results[0].id and calls[0].name == results[0].name:
        return  # as almost always
    names = {call.id: call.name for call in calls if call.id is not None}
    called = {call.name for call in calls}
    for result in results:
        if result.id is None:
            if result.name not in called:
                raise invalid(WRONG_NAME)
        elif result.id not in names:
            raise invalid(WRONG_ID)
        elif names[result.id] != result.name:
            raise invalid(WRONG_NAME)
    if len({result.id for result in results if result.id}) < min(len(names), sum(bool(one.id) for one in results)):
        raise invalid(WRONG_ID)
