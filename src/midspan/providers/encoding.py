"""Functions that encoders share: JSON, turns, results as text, ids."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.messages import Message
from midspan._types.parts import Blob, Part, Text, ToolCall, ToolResult, text_of
from midspan._types.specs import AnyTool, BuiltinTool, ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.provider import ModelProfile

encode_json = msgspec.json.Encoder().encode


def encode_items(items: Iterable[Any]) -> list[bytes]:
    """Return each item as JSON; bytes are JSON already."""
    try:
        return [item if isinstance(item, bytes) else encode_json(item) for item in items]
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"the request is not JSON serializable: {error}") from error


def encode_head(fields: dict[str, Any], extra: dict[str, Any], messages_field: str) -> bytes:
    """Return a request up to the list of its messages, without the fields that are None."""
    present = {name: value for name, value in fields.items() if value is not None}
    [head] = encode_items([{**present, **extra}])
    return b'%b,"%b":[' % (head[:-1], messages_field.encode())


def own_data(item: Message | Part, origin: str) -> Raw | None:
    """Return what the provider `origin` sent for a message or part; None if another one sent it, or it was edited."""
    data = item.provider_data
    return data.raw if data is not None and data.origin == origin and data.raw else None


def allowed_tools(tools: Sequence[AnyTool], choice: ToolChoice | None) -> Sequence[AnyTool]:
    """Return the tools that a choice allows, for services that can name one tool, but not several."""
    if choice is None or len(choice.names) < 2:
        return tools
    return [tool for tool in tools if isinstance(tool, BuiltinTool) or tool.name in choice.names]


def join_turns(messages: Sequence[Message], is_one_turn: Callable[[Message, Message], bool]) -> list[list[Message]]:
    """Group the messages into turns. `is_one_turn` says whether two adjacent messages belong to the same turn."""
    turns: list[list[Message]] = []
    for message in messages:
        if turns and is_one_turn(turns[-1][-1], message):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def result_text(result: ToolResult) -> str:
    """Return what a tool returned as text, for services that accept only text: a string as it is, others as JSON."""
    value = result.model_value
    if value is None and (result.content or not result.is_error):
        text = ""
    else:
        text = value if isinstance(value, str) else json_text(value)
    return "\n\n".join(filter(None, (text, result.hint)))


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return encode_json(value).decode()


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text, as the model wrote it if it is not valid."""
    return json_text(call.arguments) if call.raw_arguments is None else call.raw_arguments


def result_parts(result: ToolResult) -> Iterator[Text | Blob]:
    """Yield what a tool returned as texts and media, in order, for services that accept both in a result."""
    if result.value is not None:
        yield Text(result.value if isinstance(result.value, str) else json_text(result.value))
    for part in result.content:
        if isinstance(part, Blob):
            yield part
        elif result.value is None and (text := text_of(part)):
            yield Text(text)
    if result.hint is not None:
        yield Text(result.hint)


def unaccepted_media(blob: Blob) -> Text:
    """Return what stands for media of a tool or of another model that the model does not accept."""
    address = "" if blob.url is None else f" at {blob.url}"
    return Text(f"[{blob.media_type}{address}, which this model does not accept]")


def valid_id(id: str, pattern: re.Pattern[str]) -> str:
    """Return the id of a call, or one derived from it if the service does not accept its characters or its length."""
    if pattern.fullmatch(id):
        return id
    from hashlib import blake2b  # ids rarely need it

    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    candidate = f"call_{digest}"
    return candidate if pattern.fullmatch(candidate) else digest[:9]  # Mistral accepts nine characters


def adapted_tool(tool: AnyTool, profile: ModelProfile) -> AnyTool:
    """Return a tool with a schema that the model accepts. The tool keeps its name."""
    if not isinstance(tool, ToolSpec) or profile.schema is None:
        return tool
    from midspan._schema.adapt import adapt_spec  # loaded with the first tool

    return adapt_spec(tool, profile.schema)[0]
