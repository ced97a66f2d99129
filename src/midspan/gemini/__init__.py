"""The Gemini-level face: a typed client, sync and async, and the names that users of the API know.

Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midspan._http.messages import Timeouts as Timeouts
    from midspan._http.retry import RetryPolicy as RetryPolicy
    from midspan._http.transport import Transport as Transport
    from midspan._types.messages import History as History
    from midspan.gemini.auto import extract_text as extract_text
    from midspan.gemini.client import AsyncClient as AsyncClient
    from midspan.gemini.client import Client as Client
    from midspan.gemini.functions import generate_content_with_auto_tools as generate_content_with_auto_tools
    from midspan.gemini.functions import get_stream_status as get_stream_status
    from midspan.gemini.functions import stop_stream as stop_stream
    from midspan.gemini.functions import stream_generate_with_auto_tools as stream_generate_with_auto_tools
    from midspan.gemini.functions import subscribe_stream as subscribe_stream
    from midspan.gemini.functions import use as use
    from midspan.gemini.registry import ToolRegistry as ToolRegistry
    from midspan.gemini.registry import Tools as Tools
    from midspan.gemini.registry import from_tool_results as from_tool_results
    from midspan.gemini.registry import new_function_declaration as new_function_declaration
    from midspan.gemini.response import GenerateContentResponse as GenerateContentResponse
    from midspan.gemini.tools import declaration_of as declaration_of
    from midspan.gemini.types import *  # noqa: F403 - its __all__ is the list of the API's own names
    from midspan.providers.gemini.cached import Cached as Cached

_HOMES = {
    "AsyncClient": "midspan.gemini.client",
    "Cached": "midspan.providers.gemini.cached",
    "Client": "midspan.gemini.client",
    "Timeouts": "midspan._http.messages",
    "GenerateContentResponse": "midspan.gemini.response",
    "History": "midspan._types.messages",
    "RetryPolicy": "midspan._http.retry",
    "ToolRegistry": "midspan.gemini.registry",
    "Tools": "midspan.gemini.registry",
    "Transport": "midspan._http.transport",
    "declaration_of": "midspan.gemini.tools",
    "extract_text": "midspan.gemini.auto",
    "from_tool_results": "midspan.gemini.registry",
    "generate_content_with_auto_tools": "midspan.gemini.functions",
    "get_stream_status": "midspan.gemini.functions",
    "new_function_declaration": "midspan.gemini.registry",
    "stop_stream": "midspan.gemini.functions",
    "stream_generate_with_auto_tools": "midspan.gemini.functions",
    "subscribe_stream": "midspan.gemini.functions",
    "use": "midspan.gemini.functions",
}
_HOME_OF_THE_OTHERS = "midspan.gemini.types"


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "__all__":  # what `import *` asks for
            return __dir__()
        home = import_module(_HOMES.get(name, _HOME_OF_THE_OTHERS))
        if name.startswith("__") or (name not in _HOMES and name not in home.__all__):
            raise AttributeError(f"module 'midspan.gemini' has no attribute {name!r}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    from midspan.gemini import types

    return sorted([*_HOMES, *types.__all__])
