"""Thought signatures: each step of the current turn has one on its first call, and what is there is genuine."""

from collections.abc import Sequence

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.emulator.turns import Count, Turn


def check_signatures(
    turns: Sequence[Turn], count: Count, family: Family, *, since: int = 0, strict: bool = False
) -> None:
    """Signatures on calls; those before `since` were accepted before."""
    if count.forged is not None:
        raise invalid(count.forged)
    if count.foreign and strict:
        raise invalid("Invalid thought signature.")
    if family.demands_signatures:
        for at in range(_start_of_current_turn(turns, since), len(turns)):
            turn = turns[at]
            if turn.open_calls > 0 and turn.calls[0].signature is None:
                raise invalid(_missing(turn.calls[0].name, at))


def _start_of_current_turn(turns: Sequence[Turn], since: int) -> int:
    """After the latest thing that the user said himself, which results are not; not before `since`."""
    for at in range(len(turns) - 1, since - 1, -1):
        if turns[at].role == "user" and turns[at].speaks and not turns[at].results:
            return at + 1
    return since


def _missing(name: str, at: int) -> str:
    return (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
        f"call `default_api:{name}` , position {at + 1}. Please refer to "
        "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )
