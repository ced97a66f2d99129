"""How the two APIs name the fields that are against a rule."""

from collections.abc import Sequence

from midspan.emulator.refusal import Refusal, invalid
from midspan.providers.gemini.capabilities import Api


def fields_refused(faults: Sequence[tuple[str, str]], api: Api) -> Refusal:
    """One line for each field: where it is, and the words."""
    if api is Api.VERTEX:
        listed = "\n".join(f"  * {path}: [FIELD_INVALID] {words}" for path, words in faults)
        return invalid(f"The GenerateContentRequest proto is invalid:\n{listed}")
    return invalid("".join(f"* GenerateContentRequest.{path}: {words}\n" for path, words in faults))
