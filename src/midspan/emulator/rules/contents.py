"""Contents by themselves: that there are some, who speaks, and that every part says something."""

from collections.abc import Sequence

from midspan.emulator.families import Family
from midspan.emulator.refusal import Refusal, invalid
from midspan.emulator.rules.fields import fields_refused
from midspan.emulator.turns import Turn
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import Content

_MOST_TOKENS = 1_048_576
_NO_CONTENTS = {
    Api.DEVELOPER: "* GenerateContentRequest.contents: contents is not specified\n",
    Api.VERTEX: "Unable to submit request because at least one contents field is required. Learn more: "
    "https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/gemini",
}


def check_contents(turns: Sequence[Turn], tokens: int, family: Family) -> None:
    if not turns:
        raise invalid(_NO_CONTENTS[family.capabilities.api])
    if tokens > _MOST_TOKENS:
        raise invalid(
            f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({_MOST_TOKENS})."
        )


def check_content(at: int, turn: Turn, family: Family) -> None:
    """A content by itself, which is the n-th one."""
    if turn.faults:
        raise _refused(at, turn, family)


def check_instruction(instruction: Content | None, family: Family) -> None:
    if instruction is not None and not instruction.parts:
        raise fields_refused([("system_instruction.parts", "parts must not be empty.")], family.capabilities.api)


def check_server_calls(contents: Sequence[Content]) -> None:
    """What the server ran itself comes back with the calls that it made, each before what came of it."""
    called = set()
    for at, content in enumerate(contents):
        for index, part in enumerate(content.parts or ()):
            if part.tool_call is not None:
                called.add(part.tool_call.id)
            elif part.tool_response is not None and part.tool_response.id not in called:
                place = f"contents[{at}].parts[{index}].tool_response.id"
                raise invalid(f"Invalid value at '{place}': it does not match the id of any tool_call.")


def _refused(at: int, turn: Turn, family: Family) -> Refusal:
    place, words = turn.faults[0]
    if place == "role":
        return invalid(words)
    if place.endswith(".mime_type"):
        return invalid(words)
    if words.startswith("oneof"):
        return invalid(f"Invalid value at 'contents[{at}].{place}' (oneof), {words}")
    if place == "parts" and family.capabilities.api is Api.VERTEX:
        return invalid(
            "Unable to submit request because it must include at least one parts field, which describes the prompt "
            "input. Learn more: https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/gemini"
        )
    return fields_refused([(f"contents[{at}].{one}", said) for one, said in turn.faults], family.capabilities.api)
