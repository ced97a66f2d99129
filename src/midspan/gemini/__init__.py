"""A typed client for the Gemini API, sync and async. Names are imported when they are used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midspan._http.messages import Timeouts as Timeouts
    from midspan._http.retry import RetryPolicy as RetryPolicy
    from midspan._http.transport import Transport as Transport
    from midspan._types.messages import History as History
    from midspan.gemini.client import AsyncClient as AsyncClient
    from midspan.gemini.client import Client as Client
    from midspan.gemini.compat import ToolRegistry as ToolRegistry
    from midspan.gemini.compat import Tools as Tools
    from midspan.gemini.compat import extract_text as extract_text
    from midspan.gemini.compat import from_tool_results as from_tool_results
    from midspan.gemini.compat import generate_content_with_auto_tools as generate_content_with_auto_tools
    from midspan.gemini.compat import get_stream_status as get_stream_status
    from midspan.gemini.compat import new_function_declaration as new_function_declaration
    from midspan.gemini.compat import stop_stream as stop_stream
    from midspan.gemini.compat import stream_generate_with_auto_tools as stream_generate_with_auto_tools
    from midspan.gemini.compat import subscribe_stream as subscribe_stream
    from midspan.gemini.compat import use as use
    from midspan.gemini.response import GenerateContentResponse as GenerateContentResponse
    from midspan.gemini.tools import declaration_of as declaration_of
    from midspan.gemini.types import *  # noqa: F403 - its __all__ lists the types of the API
    from midspan.providers.gemini.cached import Cached as Cached

_MODULES = {
    "AsyncClient": "midspan.gemini.client",
    "Cached": "midspan.providers.gemini.cached",
    "Client": "midspan.gemini.client",
    "Timeouts": "midspan._http.messages",
    "GenerateContentResponse": "midspan.gemini.response",
    "History": "midspan._types.messages",
    "RetryPolicy": "midspan._http.retry",
    "ToolRegistry": "midspan.gemini.compat",
    "Tools": "midspan.gemini.compat",
    "Transport": "midspan._http.transport",
    "declaration_of": "midspan.gemini.tools",
    "extract_text": "midspan.gemini.compat",
    "from_tool_results": "midspan.gemini.compat",
    "generate_content_with_auto_tools": "midspan.gemini.compat",
    "get_stream_status": "midspan.gemini.compat",
    "new_function_declaration": "midspan.gemini.compat",
    "stop_stream": "midspan.gemini.compat",
    "stream_generate_with_auto_tools": "midspan.gemini.compat",
    "subscribe_stream": "midspan.gemini.compat",
    "use": "midspan.gemini.compat",
}
_TYPES = "midspan.gemini.types"


if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "__all__":  # for `import *`
            return __dir__()
        module = import_module(_MODULES.get(name, _TYPES))
        if name.startswith("__") or (name not in _MODULES and name not in module.__all__):
            raise AttributeError(f"module 'midspan.gemini' has no attribute {name!r}")
        value = globals()[name] = getattr(module, name)
        return value


def __dir__() -> list[str]:
    from midspan.gemini import types

    return sorted([*_MODULES, *types.__all__])
