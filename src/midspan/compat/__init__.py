"""Names and shapes of other designs, for programs that were written against them. New programs use `midspan.Agent`."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan.compat.clients import AnthropicClient as AnthropicClient
    from midspan.compat.clients import Client as Client
    from midspan.compat.clients import GeminiClient as GeminiClient
    from midspan.compat.clients import OpenAIClient as OpenAIClient

_HOMES = dict.fromkeys(("AnthropicClient", "Client", "GeminiClient", "OpenAIClient"), "midspan.compat.clients")

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
