"""A typed client for the Gemini API, sync and async. Names are imported when they are used."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan.gemini.client import AsyncClient as AsyncClient
    from midspan.gemini.client import Client as Client
    from midspan.gemini.response import GenerateContentResponse as GenerateContentResponse
    from midspan.gemini.types import Content as Content
    from midspan.gemini.types import FunctionCall as FunctionCall
    from midspan.gemini.types import FunctionDeclaration as FunctionDeclaration
    from midspan.gemini.types import FunctionResponse as FunctionResponse
    from midspan.gemini.types import Part as Part
    from midspan.gemini.types import Schema as Schema
    from midspan.gemini.types import Tool as Tool
    from midspan.providers.gemini.cached import Cached as Cached
    from midspan.providers.gemini.wire import CodeExecution as CodeExecution
    from midspan.providers.gemini.wire import ComputerUse as ComputerUse
    from midspan.providers.gemini.wire import FileSearch as FileSearch
    from midspan.providers.gemini.wire import GenerationConfig as GenerationConfig
    from midspan.providers.gemini.wire import GoogleMaps as GoogleMaps
    from midspan.providers.gemini.wire import GoogleSearch as GoogleSearch
    from midspan.providers.gemini.wire import McpServer as McpServer
    from midspan.providers.gemini.wire import SafetySetting as SafetySetting
    from midspan.providers.gemini.wire import ThinkingConfig as ThinkingConfig
    from midspan.providers.gemini.wire import ToolConfig as ToolConfig
    from midspan.providers.gemini.wire import UrlContext as UrlContext

_NAMES = {
    "midspan.gemini.client": "AsyncClient Client",
    "midspan.gemini.response": "GenerateContentResponse",
    "midspan.gemini.types": "Content FunctionCall FunctionDeclaration FunctionResponse Part Schema Tool",
    "midspan.providers.gemini.cached": "Cached",
    "midspan.providers.gemini.wire": (
        "CodeExecution ComputerUse FileSearch GenerationConfig GoogleMaps GoogleSearch "
        "McpServer SafetySetting ThinkingConfig ToolConfig UrlContext"
    ),
}

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __all__, __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
