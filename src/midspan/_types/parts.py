"""The parts of messages."""

from base64 import b64decode, b64encode
from os import urandom
from typing import Any, Self

from msgspec import Raw, Struct

from midspan._types.texts import truncate
from midspan.errors import ConfigError

NO_BYTES = Raw(b"")
"""An absent `Raw`. Use this object itself: `omit_defaults` compares it by identity."""


class ProviderData(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one provider sent for a part or a message. Only that provider reads it; all others ignore it."""

    origin: str
    """The wire format that `raw` is written in."""
    raw: Raw = NO_BYTES
    """Exact bytes: of the whole message, or of a part with more fields than ours. Absent after an edit."""


class Text(Struct, frozen=True, gc=False, omit_defaults=True, tag="text"):
    """Text of the user or the model."""

    text: str
    provider_data: ProviderData | None = None


class Thought(Struct, frozen=True, gc=False, omit_defaults=True, tag="thought"):
    """Reasoning that a model shows; not part of its answer."""

    text: str
    provider_data: ProviderData | None = None


class Blob(Struct, frozen=True, gc=False, omit_defaults=True, tag="blob"):
    """An image, a sound or a file: its bytes, or where they are."""

    media_type: str
    base64: str | None = None
    """Kept in base64, as it is sent, so that it is never encoded twice."""
    url: str | None = None
    name: str | None = None
    provider_data: ProviderData | None = None

    @classmethod
    def of(cls, data: bytes, media_type: str, *, name: str | None = None) -> Self:
        """Return a blob of these bytes."""
        return cls(media_type, base64=b64encode(data).decode(), name=name)

    @property
    def data(self) -> bytes:
        if self.base64 is None:
            raise ConfigError(f"the data of this {self.media_type} is at {self.url!r} and was not loaded")
        padding = "=" * (-len(self.base64) % 4)  # URL-safe encoders leave it out
        try:
            return b64decode(self.base64.translate(_FROM_URLSAFE) + padding)
        except ValueError as error:
            raise ConfigError(f"the data of this {self.media_type} is not valid base64") from error


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag="call"):
    """The model asks for a tool to be run. A call with `arguments_error` is never run; the model gets the error."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    raw_arguments: str | None = None
    """The arguments as text, if the provider sent text that could not be read."""
    arguments_error: str | None = None
    """Why the arguments could not be read, for the model."""
    provider_data: ProviderData | None = None

    def error_result(self, message: str, *notes: str) -> "ToolResult":
        """Return the result of this call as an error message for the model."""
        return ToolResult(self.id, self.name, truncate(message), is_error=True, notes=notes)

    @classmethod
    def read(cls, value: Any) -> "ToolCall | None":
        """Return a call from a dict or object with name and args, as other APIs have it; None if it is not a call."""
        if isinstance(value, ToolCall):
            return value
        is_dict = isinstance(value, dict)
        fields = value if is_dict else {name: getattr(value, name) for name in _CALL_FIELDS if hasattr(value, name)}
        if not ("args" in fields or "arguments" in fields or (is_dict and fields.keys() <= {"id", "name"})):
            return None
        name, arguments = fields.get("name"), fields.get("args") or fields.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return None
        return cls(str(fields.get("id") or local_id()), name, arguments)


class Resource(Struct, frozen=True, gc=False, omit_defaults=True, tag="resource"):
    """Something that a tool refers to by its URL, with its content if the tool sent it along."""

    url: str
    name: str | None = None
    media_type: str | None = None
    text: str | None = None
    base64: str | None = None


NOT_RUN = "not run"
"""The note on the result of a call that was wrong and therefore not run."""
UNREADABLE = "unreadable arguments"
FORBIDDEN = "forbidden"
OVER_LIMIT = "over a limit"
REPEATED = "repeated"
REFUSAL_KINDS = frozenset((UNREADABLE, FORBIDDEN, OVER_LIMIT, REPEATED))
"""Notes on the results of calls that a rule of the run refused."""


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, tag="result"):
    """The outcome of a call: what the tool returned, or an error message that the model can act on."""

    id: str
    """The id of the call."""
    name: str
    value: Any = None
    """The structured form, as JSON data; None if there is only `content`."""
    is_error: bool = False
    content: tuple[Text | Blob | Resource, ...] = ()
    """Texts, images, audio, files and links, in the order of the tool."""
    is_final: bool = False
    """The run ends with this result."""
    notes: tuple[str, ...] = ()
    """For observers, not for the model: what was changed in the arguments or in the result, or why the call was refused
    (one of the constants above)."""
    hint: str | None = None
    """What Midspan adds to the result for the model."""
    meta: dict[str, Any] = {}
    """What the source adds for observers, or the limit that refused the call; the model does not see it."""
    provider_data: ProviderData | None = None

    @property
    def media(self) -> tuple[Blob, ...]:
        """The images, audio and files among the content."""
        return tuple(part for part in self.content if type(part) is Blob)

    @property
    def model_value(self) -> Any:
        """What the model reads in addition to the media: the value, or the texts and links of the content."""
        if self.value is not None or not self.content:
            return self.value
        texts = [text for part in self.content if (text := text_of(part))]
        return "\n".join(texts) if texts else None


def text_of(part: Text | Blob | Resource) -> str | None:
    """Return the text in a part of a result, or the URL of a resource without text."""
    if isinstance(part, Resource):
        return part.text if part.text is not None else part.url
    return part.text if isinstance(part, Text) else None


class Opaque(Struct, frozen=True, gc=False, omit_defaults=True, tag="opaque"):
    """A part that only the provider which sent it understands. It is sent back unchanged."""

    name: str
    """The provider's name for this kind of part."""
    provider_data: ProviderData


Part = Text | Thought | Blob | ToolCall | ToolResult | Opaque

_FROM_URLSAFE = str.maketrans("-_", "+/")
_CALL_FIELDS = ("id", "name", "args", "arguments")
_LOCAL_ID = "midspan_"


def local_id() -> str:
    """Return an id for a call to which the provider gave none. It is sent only to APIs that demand one."""
    return _LOCAL_ID + urandom(8).hex()


def is_local_id(id: str) -> bool:
    return id.startswith(_LOCAL_ID)
