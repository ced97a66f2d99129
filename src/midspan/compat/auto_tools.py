"""Automatic execution as functions of the module, with one client for the whole process, and the functions beside it.

The client is created from the environment with the first request, as `Client()` is; `use` replaces it.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from midspan._schema.dialect import NameRule
from midspan._types.messages import Message
from midspan._types.parts import ToolResult
from midspan.errors import ConfigError
from midspan.gemini.client import Client
from midspan.gemini.request import Contents, read_tools
from midspan.gemini.types import Content, FunctionDeclaration, check_schema
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import dump, load

if TYPE_CHECKING:
    from midspan._loop.background import RunStatus
    from midspan._loop.background_runs import View
    from midspan.gemini.auto import AutoResponse

_NAMES = NameRule(extra="-", digit_first=True)
_SCHEMAS = ("parameters", "parameters_json_schema", "response", "response_json_schema")


def new_function_declaration(
    name: str, description: str, parameters: Any = None, **options: Any
) -> FunctionDeclaration:
    """Return a declaration whose name, description and schemas every API of the family accepts."""
    if not isinstance(name, str) or not _NAMES.allows(name):
        raise ConfigError(f"{name!r:.80} is not a valid function name; use 1 to 64 ASCII letters, digits, _ and -")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{name} needs a description; it is all that the model knows of the function")
    fields = {"name": name, "description": description, "parameters": parameters, **options}
    for schema in _SCHEMAS:
        check_schema(fields.get(schema), f"{name}.{schema}")
    [tool] = read_tools([fields])
    [declaration] = tool.function_declarations or []
    return load(FunctionDeclaration, dump(declaration))


def from_tool_results(results: Iterable[ToolResult]) -> Content:
    """Return the turn that gives results to the model: one content, one part for each result, in their order."""
    content = bytes(encode_message(Message("user", tuple(results)), Capabilities()))
    if not content:
        raise ConfigError("results is empty, and the API rejects a content without parts")
    return load(Content, content)


def extract_text(response: Any) -> str:
    """Return the text of a response, without thoughts; raise an error if there is none."""
    text = getattr(response, "text", None)
    if not isinstance(text, str) or not text:
        raise ConfigError("No text content found in response")
    return text


_lock = threading.Lock()
_client: Client | None = None


def use(client: Client | None) -> None:
    """Let all functions of this module use this client; None means the one of the environment again."""
    global _client  # noqa: PLW0603 - one for the process
    with _lock:
        _client = client


def _shared_client() -> Client:
    global _client  # noqa: PLW0603 - one for the process
    with _lock:
        if _client is None:
            _client = Client()
        return _client


def generate_content_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> "AutoResponse":
    """Execute calls until the final answer; see `AsyncClient.generate_content_with_auto_tools`."""
    return _shared_client().generate_content_with_auto_tools(contents, tools=tools, **request)


def stream_generate_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> str:
    """Do the same in the background; return the id to subscribe to."""
    return _shared_client().stream_generate_with_auto_tools(contents, tools=tools, **request)


def subscribe_stream(stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
    """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
    return _shared_client().subscribe_stream(stream_id, view=view, from_event=from_event)


def stop_stream(stream_id: str) -> bool:
    """Cancel a background run; return whether it was still running."""
    return _shared_client().stop_stream(stream_id)


def get_stream_status(stream_id: str) -> "RunStatus":
    return _shared_client().get_stream_status(stream_id)
