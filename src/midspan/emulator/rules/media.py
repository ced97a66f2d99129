"""Files in the results of functions: which families take them, and how they may be referred to."""

from collections.abc import Iterator, Sequence
from typing import Any

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import Content, FunctionResponse


def check_media(contents: Sequence[Content], family: Family) -> None:
    """For requests in which some result holds files; all others need not be looked at."""
    for at, content in enumerate(contents):
        for index, part in enumerate(content.parts or ()):
            if part.function_response is not None and part.function_response.parts:
                _check(part.function_response, f"contents[{at}].parts[{index}].function_response", family)


def _check(result: FunctionResponse, place: str, family: Family) -> None:
    if not family.capabilities.media_in_results:
        raise invalid(
            "Unable to submit request because `function_response.parts` is not supported for this model. Learn more: "
            "https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling"
        )
    names = set()
    for at, part in enumerate(result.parts or ()):
        file = part.inline_data or part.file_data
        if file is None:
            words = "required oneof field 'data' must have one initialized field"
            raise invalid(f"* GenerateContentRequest.{place}.parts[{at}].data: {words}\n")
        names.add(file.display_name)
    for name in _references(result.response):
        # The Developer API does not find a name even where there is one.
        if family.capabilities.api is Api.DEVELOPER or name not in names:
            raise invalid(f"The $ref `{name}` in {place}.response does not match to a display_name of its parts.")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str) and len(value) == 1:
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
