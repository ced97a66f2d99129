"""What a caller says, in any form that makes sense, as the contents of a request."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Text, Thought, ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.gemini.checking import check_text, plain, read, read_plain, shown, written
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import Encoded, encode_message, encode_messages
from midspan.providers.gemini.proto import from_plain

Contents = Any
"""A text, a part, a content, a message; a list of them; a History; or dicts as the API has them."""

_FORMS = "give a text, a Part, a Content, a Message, a dict of one of these, or a list of them"
_PARTS = frozenset((Text, Thought, Blob, ToolCall, ToolResult, Opaque))
# The API takes two roles; these are what other APIs, and the older clients of this one, call them.
_ROLES = {"user": "user", "model": "model", "assistant": "model", "function": "user", "tool": "user"}


def encode_contents(contents: Contents, capabilities: Capabilities) -> Encoded:
    """The contents with commas between them."""
    if isinstance(contents, bytes | bytearray | memoryview):
        raise ConfigError("bytes are no contents; say of what kind they are with Part.from_bytes(data, mime_type)")
    several = isinstance(contents, Sequence | History) and not isinstance(contents, str)
    items = list(contents) if several else [contents]
    if items and all(_is_part(item) for item in items):
        return b"" if items == [""] else _from_parts(items, "contents")
    if items and all(isinstance(item, Message) for item in items):
        for at, message in enumerate(items):
            _check_message(message, f"contents[{at}]")
        return b",".join(encode_messages(items, capabilities))
    places = [f"contents[{at}]" for at in range(len(items))] if several else ["contents"]
    pieces = [_content(item, place, capabilities) for item, place in zip(items, places, strict=True)]
    return b",".join([piece for piece in pieces if piece])


def system_content(given: Contents | None) -> wire.Content | None:
    """A system instruction: a content without a role."""
    if given is None:
        return None
    where = "system_instruction"
    if isinstance(given, wire.Content):
        return read(wire.Content, given, where)
    if isinstance(given, Mapping) and "parts" in given:
        return _read({name: value for name, value in given.items() if name != "role"}, where)  # which says nothing here
    several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return wire.Content(parts=[_part(part, where) for part in (given if several else [given])])


def check_messages(history: History) -> None:
    """Check what is new in a history; what was sent before is known to be right."""

    def check(known: int | None, new: tuple[Message, ...]) -> int:
        for at, message in enumerate(new, start=known or 0):
            if not (
                type(message) is Message
                and type(message.parts) is tuple
                and _PARTS.issuperset(map(type, message.parts))
            ):
                _check_message(message, f"message {at} of the history")
        return (known or 0) + len(new)

    history.derived("gemini checked", check)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, Message):
        raise ConfigError(f"{where} is {shown(message)}; a History is made of Message")
    if not isinstance(message.parts, tuple | list):
        raise ConfigError(f"{where} has {shown(message.parts)} for its parts; give a tuple of them")
    for part in message.parts:
        if type(part) not in _PARTS:
            raise ConfigError(f"{where} holds {shown(part)}, which is no part; give a text, Blob, ToolCall, ToolResult")


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (
        isinstance(item, Mapping) and "parts" not in item and "role" not in item
    )


def _content(item: Any, where: str, capabilities: Capabilities) -> Encoded:
    match item:
        case Message():
            _check_message(item, where)
            return encode_message(item, capabilities)
        case wire.Content():
            return _turn(_checked(item, where), where)
        case Mapping() if not _is_part(item):
            return _turn(_read(item, where), where)
    return _from_parts([item], where)


def _from_parts(items: Sequence[Any], where: str) -> bytes:
    """One turn of the user."""
    parts = [item if isinstance(item, wire.Part) else _part(item, where) for item in items]
    return _turn(wire.Content(role="user", parts=parts), where)


def _turn(content: wire.Content, where: str) -> bytes:
    """A turn as JSON. What a model said may hold what nobody has heard of yet, and goes back as it came."""
    by_model, parts = content.role == "model", content.parts or []
    if by_model and not parts:
        return b""  # the API refuses a content without parts
    if not by_model and (not parts or any(map(_is_empty, parts))):
        raise ConfigError(f"{where} says nothing, or one of its parts does; {_FORMS}")
    return written(wire.Content, content, where, kinds=not by_model)


def _is_empty(part: wire.Part) -> bool:
    if part.text is not None or part.function_response is not None:
        return False  # nearly always, and it saves looking at the others
    return all(value is None or (type(value) is dict and not value) for value in astuple(part))


def _read(given: Mapping[str, Any], where: str) -> wire.Content:
    """A content out of a dict; its parts may be texts, or a single one without a list."""
    parts = given.get("parts")
    listed = parts if isinstance(parts, list | tuple) else [] if parts is None else [parts]
    said = plain({**given, "parts": []}, where)
    if said.get("role") is not None:
        said["role"] = _role(said["role"], where)
    if said.get("role") == "model":
        return from_plain(wire.Content, said | {"parts": [plain(_open(one, where), where) for one in listed]})
    made = read_plain(wire.Content, said, where)
    return replace(made, parts=[_part(one, where) for one in listed])


def _open(item: Any, where: str) -> Any:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, wire.Part | Mapping):
        return item
    raise ConfigError(f"{where} holds {shown(item)}, which is no part of a content: {_FORMS}")


def _part(item: Any, where: str) -> wire.Part:
    if isinstance(item, str):
        return wire.Part(text=check_text(item, where))
    said = plain(_open(item, where), where)
    return read_plain(wire.Part, said, where, names=not isinstance(item, wire.Part))


def _role(role: Any, where: str) -> str:
    if isinstance(role, str) and role in ("system", "developer"):
        raise ConfigError(f"{where} has the role {role!r}; the API takes such words as system_instruction=…")
    known = _ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise ConfigError(f"{where} has {shown(role)} for its role; roles are user and model")
    return known


def _checked(content: wire.Content, where: str) -> wire.Content:
    if not isinstance(content.parts, list | tuple) or not all(isinstance(part, wire.Part) for part in content.parts):
        raise ConfigError(f"the parts of {where} are a list of Part, not {shown(content.parts)}")
    if content.role is None or (isinstance(content.role, str) and content.role in ("user", "model")):
        return content
    return replace(content, role=_role(content.role, where))
