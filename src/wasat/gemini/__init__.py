"""The Gemini-level face: a typed client, sync and async, and the names that users of the API know.

Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasat.gemini.client import AsyncClient as AsyncClient
    from wasat.gemini.client import Client as Client
    from wasat.gemini.request import declaration_of as declaration_of
    from wasat.gemini.response import GenerateContentResponse as GenerateContentResponse
    from wasat.gemini.types import *  # noqa: F403 - its __all__ is the list of the API's own names
    from wasat.types.messages import History as History

_HOMES = {
    "AsyncClient": "wasat.gemini.client",
    "Client": "wasat.gemini.client",
    "GenerateContentResponse": "wasat.gemini.response",
    "History": "wasat.types.messages",
    "declaration_of": "wasat.gemini.request",
}
_HOME_OF_THE_OTHERS = "wasat.gemini.types"


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        home = import_module(_HOMES.get(name, _HOME_OF_THE_OTHERS))
        if name.startswith("__") or (name not in _HOMES and name not in home.__all__):
            raise AttributeError(f"module 'wasat.gemini' has no attribute {name!r}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    from wasat.gemini import types

    return sorted([*_HOMES, *types.__all__])
