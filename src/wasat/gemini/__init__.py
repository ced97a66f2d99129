"""The Gemini-level face: a typed client, sync and async, and the names that users of the API know.

Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasat.gemini.auto import extract_text as extract_text
    from wasat.gemini.client import AsyncClient as AsyncClient
    from wasat.gemini.client import Client as Client
    from wasat.gemini.functions import generate_content_with_auto_tools as generate_content_with_auto_tools
    from wasat.gemini.functions import get_stream_status as get_stream_status
    from wasat.gemini.functions import stop_stream as stop_stream
    from wasat.gemini.functions import stream_generate_with_auto_tools as stream_generate_with_auto_tools
    from wasat.gemini.functions import subscribe_stream as subscribe_stream
    from wasat.gemini.functions import use as use
    from wasat.gemini.registry import ToolRegistry as ToolRegistry
    from wasat.gemini.registry import Tools as Tools
    from wasat.gemini.registry import from_tool_results as from_tool_results
    from wasat.gemini.registry import new_function_declaration as new_function_declaration
    from wasat.gemini.response import GenerateContentResponse as GenerateContentResponse
    from wasat.gemini.tools import declaration_of as declaration_of
    from wasat.gemini.types import *  # noqa: F403 - its __all__ is the list of the API's own names
    from wasat.http.deadlines import Deadlines as Deadlines
    from wasat.http.retry import RetryPolicy as RetryPolicy
    from wasat.http.transport import Transport as Transport
    from wasat.providers.gemini.cached import Cached as Cached
    from wasat.types.messages import History as History

_HOMES = {
    "AsyncClient": "wasat.gemini.client",
    "Cached": "wasat.providers.gemini.cached",
    "Client": "wasat.gemini.client",
    "Deadlines": "wasat.http.deadlines",
    "GenerateContentResponse": "wasat.gemini.response",
    "History": "wasat.types.messages",
    "RetryPolicy": "wasat.http.retry",
    "ToolRegistry": "wasat.gemini.registry",
    "Tools": "wasat.gemini.registry",
    "Transport": "wasat.http.transport",
    "declaration_of": "wasat.gemini.tools",
    "extract_text": "wasat.gemini.auto",
    "from_tool_results": "wasat.gemini.registry",
    "generate_content_with_auto_tools": "wasat.gemini.functions",
    "get_stream_status": "wasat.gemini.functions",
    "new_function_declaration": "wasat.gemini.registry",
    "stop_stream": "wasat.gemini.functions",
    "stream_generate_with_auto_tools": "wasat.gemini.functions",
    "subscribe_stream": "wasat.gemini.functions",
    "use": "wasat.gemini.functions",
}
_HOME_OF_THE_OTHERS = "wasat.gemini.types"


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "__all__":  # what `import *` asks for
            return __dir__()
        home = import_module(_HOMES.get(name, _HOME_OF_THE_OTHERS))
        if name.startswith("__") or (name not in _HOMES and name not in home.__all__):
            raise AttributeError(f"module 'wasat.gemini' has no attribute {name!r}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    from wasat.gemini import types

    return sorted([*_HOMES, *types.__all__])
