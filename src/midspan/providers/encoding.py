"""What the encoders of several providers share: turns, texts of results, ids."""

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from midspan._types.messages import Message
from midspan._types.parts import Blob, Text, ToolResult, text_of
from midspan._types.specs import AnyTool, ToolSpec
from midspan.providers.provider import ModelProfile


def is_same_role(first: Message, second: Message) -> bool:
    return first.role == second.role


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
    return f"{text}\n\n{result.hint}" if result.hint is not None and text else text or result.hint or ""


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


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


def valid_id(id: str, pattern: re.Pattern[str]) -> str:
    """Return the id of a call, or one derived from it if the service does not accept its characters or its length."""
    if pattern.fullmatch(id):
        return id
    from hashlib import blake2b  # ids rarely need it

    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    candidate = f"call_{digest}"
    return candidate if pattern.fullmatch(candidate) else digest[:_SHORT_ID]


_SHORT_ID = 9
"""The length of ids that Mistral accepts."""


def adapted_tool(tool: AnyTool, profile: ModelProfile) -> AnyTool:
    """Return a tool with a schema that the model accepts. Its name and its properties keep their names."""
    if not isinstance(tool, ToolSpec) or profile.schema is None:
        return tool
    from midspan._schema.adapt import adapt_spec  # loaded with the first tool

    return adapt_spec(tool, profile.schema)[0]
