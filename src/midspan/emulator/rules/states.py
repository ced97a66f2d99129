"""How much of schemas fits into one constraint, where calls are held to them.

The real budget is told nowhere; it is known to grow with the words of properties and enums. Ours is a guess, far above
what recordings show to pass.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from midspan.emulator.refusal import invalid
from midspan.providers.gemini.wire import FunctionCallingConfig, Tool

MOST_CHARACTERS = 32_768
"""Of the names of properties and the values of enums, in all functions that may be called."""
_TOO_MANY = (
    "The specified schema produces a constraint that has too many states for serving. Typical causes of this error "
    "are schemas with lots of text (for example, very long property or enum names), schemas with long array length "
    "limits (especially when nested), or schemas using complex value matchers (for example, integers or numbers with "
    "minimum/maximum bounds or strings with complex formats like date-time)"
)


def check_states(tools: Sequence[Tool], calling: FunctionCallingConfig) -> None:
    """For modes in which each call is held to the schema of its function."""
    if calling.mode not in ("ANY", "VALIDATED"):
        return
    if sum(map(len, _words(tools, calling.allowed_function_names or ()))) > MOST_CHARACTERS:
        raise invalid(_TOO_MANY)


def _words(tools: Sequence[Tool], allowed: Collection[str]) -> Iterator[str]:
    for tool in tools:
        for one in tool.function_declarations or ():
            if not allowed or one.name in allowed:
                yield from _words_of(msgspec.to_builtins(one.parameters))
                yield from _words_of(one.parameters_json_schema)


def _words_of(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for inner in schema:
            yield from _words_of(inner)
    elif isinstance(schema, dict):
        for keyword, inner in schema.items():
            if keyword == "properties" and isinstance(inner, dict):
                yield from inner
                yield from _words_of(list(inner.values()))
            elif keyword == "enum" and isinstance(inner, list):
                yield from map(str, inner)
            else:
                yield from _words_of(inner)
