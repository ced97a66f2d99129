"""Turns in their order: a call after the user, its results right after it, one for each, and the user last."""

from collections.abc import Sequence

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.emulator.turns import Call, Count, Result, Turn

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
        _check_ids(asked, turn.results)


def _check_ids(asked: Turn, results: Sequence[Result]) -> None:
    """Each result answers another one of the calls; one without an id is found by its name."""
    calls = asked.calls
    if len(calls) == len(results) == 1 and calls[0].id == results[0].id and calls[0].name == results[0].name:
        return  # as almost always
    ids = [call.id for call in calls if call.id]
    if len(set(ids)) < len(ids):
        raise invalid(WRONG_ID)
    waiting = _unanswered(asked)
    # Those with an id take their calls first: what is left may be claimed by name.
    for result in sorted(results, key=_has_no_id):
        waiting.remove(_call_of(result, waiting))


def _has_no_id(result: Result) -> bool:
    return not result.id


def _unanswered(asked: Turn) -> list[Call]:
    """The calls of a turn without those that the server answered within it."""
    waiting = list(asked.calls)
    for own in asked.results:
        found = next((call for call in waiting if call.id == own.id and call.name == own.name), None)
        found = found or next((call for call in waiting if call.name == own.name), None)
        if found is not None:
            waiting.remove(found)
    return waiting


def _call_of(result: Result, waiting: Sequence[Call]) -> Call:
    if result.id:
        found = next((call for call in waiting if call.id == result.id), None)
        if found is None:
            raise invalid(WRONG_ID)
        if found.name != result.name:
            raise invalid(WRONG_NAME)
        return found
    named = next((call for call in waiting if call.name == result.name), None)
    if named is None:
        raise invalid(WRONG_NAME)
    return named
