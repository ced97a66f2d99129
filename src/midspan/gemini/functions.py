"""Automatic execution for who needs no client of his own: one of the whole process does it.

It is made of the environment when it is first asked, as `Client()` is; `use` gives another one.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from midspan.errors import ConfigError
from midspan.gemini.client import Client
from midspan.gemini.contents import Contents

if TYPE_CHECKING:
    from midspan._loop.background_runs import RunStatus, View
    from midspan.gemini.auto import AutoResponse

_lock = threading.Lock()
_client: Client | None = None


def use(client: Client | None) -> None:
    """Have all functions of this module ask through this client; None is the one of the environment again."""
    global _client  # noqa: PLW0603 - one for the process
    if client is not None and not isinstance(client, Client):
        raise ConfigError(f"use(…) takes a Client, not {type(client).__name__}")
    with _lock:
        _client = client


def generate_content_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> "AutoResponse":
    """Ask, have the tools called, and give the final answer; see `AsyncClient`."""
    return _one().generate_content_with_auto_tools(contents, tools, **request)


def stream_generate_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> str:
    """The same in the background; returns the id to subscribe to."""
    return _one().stream_generate_with_auto_tools(contents, tools, **request)


def subscribe_stream(stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
    """The text of the final answer, piece by piece; with `view="all"` every event of the run with its number."""
    return _one().subscribe_stream(stream_id, view=view, from_event=from_event)


def stop_stream(stream_id: str) -> bool:
    """Stop it; whether it was still going on."""
    return _one().stop_stream(stream_id)


def get_stream_status(stream_id: str) -> "RunStatus":
    """Its phase, and how far it is."""
    return _one().get_stream_status(stream_id)


def _one() -> Client:
    global _client  # noqa: PLW0603 - one for the process
    with _lock:
        if _client is None:
            _client = Client()
        return _client
