"""Messages and what they consist of: parts, histories, usage, citations."""

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
