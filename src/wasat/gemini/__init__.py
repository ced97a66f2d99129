"""The Gemini-level face: a typed client, sync and async, and the names that users of the API know.

Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasat.gemini.client import AsyncClient, Client
    from wasat.gemini.request import declaration_of
    from wasat.gemini.response import GenerateContentResponse
    from wasat.gemini.types import (
        CodeExecution,
        ComputerUse,
        Content,
        FileSearch,
        FunctionCall,
        FunctionDeclaration,
        FunctionResponse,
        GenerationConfig,
        GoogleMaps,
        GoogleSearch,
        GoogleSearchRetrieval,
        McpServer,
        Part,
        SafetySetting,
        Schema,
        ThinkingConfig,
        Tool,
        ToolConfig,
        UrlContext,
    )
    from wasat.types.messages import History

_HOMES = {
    "wasat.gemini.client": ("AsyncClient", "Client"),
    "wasat.gemini.request": ("declaration_of",),
    "wasat.gemini.response": ("GenerateContentResponse",),
    "wasat.types.messages": ("History",),
    "wasat.gemini.types": (
        "CodeExecution",
        "ComputerUse",
        "Content",
        "FileSearch",
        "FunctionCall",
        "FunctionDeclaration",
        "FunctionResponse",
        "GenerationConfig",
        "GoogleMaps",
        "GoogleSearch",
        "GoogleSearchRetrieval",
        "McpServer",
        "Part",
        "SafetySetting",
        "Schema",
        "ThinkingConfig",
        "Tool",
        "ToolConfig",
        "UrlContext",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncClient",
    "Client",
    "CodeExecution",
    "ComputerUse",
    "Content",
    "FileSearch",
    "FunctionCall",
    "FunctionDeclaration",
    "FunctionResponse",
    "GenerateContentResponse",
    "GenerationConfig",
    "GoogleMaps",
    "GoogleSearch",
    "GoogleSearchRetrieval",
    "History",
    "McpServer",
    "Part",
    "SafetySetting",
    "Schema",
    "ThinkingConfig",
    "Tool",
    "ToolConfig",
    "UrlContext",
    "declaration_of",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'wasat.gemini' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
