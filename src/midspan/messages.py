"""Messages and what they consist of: parts, histories, usage, citations."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._types.codec import from_json as from_json
    from midspan._types.codec import to_json as to_json
    from midspan._types.exchange import Citation as Citation
    from midspan._types.exchange import FinishReason as FinishReason
    from midspan._types.exchange import ModelResponse as ModelResponse
    from midspan._types.exchange import Usage as Usage
    from midspan._types.messages import History as History
    from midspan._types.messages import Message as Message
    from midspan._types.messages import Role as Role
    from midspan._types.parts import Blob as Blob
    from midspan._types.parts import Opaque as Opaque
    from midspan._types.parts import Part as Part
    from midspan._types.parts import ProviderData as ProviderData
    from midspan._types.parts import Resource as Resource
    from midspan._types.parts import Text as Text
    from midspan._types.parts import Thought as Thought
    from midspan._types.parts import ToolCall as ToolCall
    from midspan._types.parts import ToolResult as ToolResult

_HOMES = {
    "Blob": "midspan._types.parts",
    "Citation": "midspan._types.exchange",
    "FinishReason": "midspan._types.exchange",
    "History": "midspan._types.messages",
    "Message": "midspan._types.messages",
    "ModelResponse": "midspan._types.exchange",
    "Opaque": "midspan._types.parts",
    "Part": "midspan._types.parts",
    "ProviderData": "midspan._types.parts",
    "Resource": "midspan._types.parts",
    "Role": "midspan._types.messages",
    "Text": "midspan._types.parts",
    "Thought": "midspan._types.parts",
    "ToolCall": "midspan._types.parts",
    "ToolResult": "midspan._types.parts",
    "Usage": "midspan._types.exchange",
    "from_json": "midspan._types.codec",
    "to_json": "midspan._types.codec",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
