"""A request as the API reads it: every field known and of its type, or refused with its place in the API's words."""

import binascii
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from midspan.emulator.reading.fields import Field, Kind, fields_of
from midspan.emulator.refusal import Refusal, invalid, unreadable
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import Proto

AnyProto = TypeVar("AnyProto", bound=Proto)

_MOST_VIOLATIONS = 200
_LONGEST_QUOTE = 200
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")


class Dialect(Struct, frozen=True):
    """Which API in which version; what it does not have, it does not know."""

    api: Api = Api.DEVELOPER
    version: str = "v1beta"
    call_ids: bool = True

    def type_url(self, name: str) -> str:
        package = "google.ai.generativelanguage" if self.api is Api.DEVELOPER else "google.cloud.aiplatform"
        return f"type.googleapis.com/{package}.{self.version}.{name}"


def read(form: type[AnyProto], body: bytes, dialect: Dialect) -> AnyProto:
    """The message that a body holds."""
    return convert(form, decoded(body), dialect)


def decoded(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is."""
    try:
        found = msgspec.json.decode(body) if body.strip() else {}
    except RecursionError as error:
        raise unreadable([("", "Invalid JSON payload received. Nested too deep.")]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        excerpt = body[:60].decode("utf-8", "replace")
        words = f"Invalid JSON payload received. Unexpected token.\n{excerpt}\n^"
        raise unreadable([("", words)]) from error
    if not isinstance(found, dict):
        raise unreadable([("", 'Invalid JSON payload received. Unknown name "": Root element must be a message.')])
    return found


def convert(form: type[AnyProto], plain: dict[str, Any], dialect: Dialect) -> AnyProto:
    """The same out of plain values."""
    walk = _Walk(dialect)
    try:
        canonical = walk.message(form, plain, "")
    except RecursionError as error:
        raise invalid("A FunctionDeclaration in the request exceeds the maximum allowed nesting depth.") from error
    if walk.violations:
        raise unreadable(walk.violations)
    try:
        return msgspec.convert(canonical, form)
    except (msgspec.ValidationError, RecursionError) as error:  # a number that is too large for its field
        raise Refusal(400, f"Invalid JSON payload received. {error}") from error


class _Walk:
    """One way through a message; collects everything that the server would complain about."""

    def __init__(self, dialect: Dialect) -> None:
        self.violations: list[tuple[str, str]] = []
        self._dialect = dialect

    def message(self, form: type[Proto], plain: dict[str, Any], path: str) -> dict[str, Any]:
        table = fields_of(form)
        result = {}
        for name, value in plain.items():
            field = table.get(name)
            if field is None or not self._has(field, form):
                self._unknown(name, path, "Cannot find field.")
            elif value is not None:
                result[field.json_name] = self._field(field, name, value, path)
        return result

    def _has(self, field: Field, form: type[Proto]) -> bool:
        if field.name == "id" and form.__name__ in ("FunctionCall", "FunctionResponse"):
            return self._dialect.call_ids
        return field.only is None or field.only is self._dialect.api

    def _field(self, field: Field, name: str, value: Any, path: str) -> Any:
        place = f"{path}.{field.name}" if path else field.name
        if field.repeated:
            # A lone value may stand there without its list.
            items = value if isinstance(value, list) else [value]
            return [self._single(field, item, f"{place}[{at}]") for at, item in enumerate(items) if item is not None]
        if field.mapped:
            return self._map(field, value, place)
        if isinstance(value, list) and field.kind is not Kind.VALUE:
            self._unknown(name, path, "Proto field is not repeating, cannot start list.")
            return None
        return self._single(field, value, place)

    def _map(self, field: Field, value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            self._invalid(place, "Map", value)
            return None
        return {
            key: self._single(field, item, f"{place}[{at}].value")
            for at, (key, item) in enumerate(value.items())
            if item is not None
        }

    def _single(self, field: Field, value: Any, place: str) -> Any:
        if field.kind is Kind.MESSAGE:
            assert field.form is not None, "a message has a form"
            if isinstance(value, dict):
                return self.message(field.form, value, place)
            return self._invalid(place, self._dialect.type_url(field.form.__name__), value)
        if field.kind is Kind.VALUE:
            return value
        if field.kind is Kind.OBJECT:
            type_url = "type.googleapis.com/google.protobuf.Struct"
            return value if isinstance(value, dict) else self._invalid(place, type_url, value)
        if isinstance(value, dict | list):
            return self._invalid(place, field.kind.value, value, "Starting an object on a scalar field")
        return self._scalar(field, value, place)

    def _scalar(self, field: Field, value: Any, place: str) -> Any:
        if field.kind is Kind.ENUM:
            return self._word(field, value, place)
        read = _SCALARS[field.kind](value)
        if read is not None:
            return read
        words = f"Base64 decoding failed for {_quoted(value)}" if field.kind is Kind.BYTES else None
        return self._invalid(place, field.kind.value, value, words)

    def _word(self, field: Field, value: Any, place: str) -> Any:
        if field.enum is None:
            return value if type(value) in (str, int) else self._invalid(place, "TYPE_ENUM", value)
        name, words = field.enum
        if type(value) is int:
            return words[value] if name in _NUMBERED and 0 <= value < len(words) else value
        if isinstance(value, str) and value.upper() in words:
            return value.upper()
        return self._invalid(place, self._dialect.type_url(name), value)

    def _unknown(self, name: str, path: str, words: str) -> None:
        at = f" at '{path}'" if path else ""
        self._add(path, f'Invalid JSON payload received. Unknown name "{name[:_LONGEST_QUOTE]}"{at}: {words}')

    def _invalid(self, place: str, kind: str, value: Any, words: str | None = None) -> None:
        self._add(place, f"Invalid value at '{place}' ({kind}), {words or _quoted(value)}")

    def _add(self, field: str, words: str) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append((field, words))


_NUMBERED = ("Type", "FunctionCallingConfig.Mode")
"""Enums whose words stand here in the order of their numbers."""


def _quoted(value: Any) -> str:
    written = msgspec.json.encode(value).decode()
    return written if len(written) <= _LONGEST_QUOTE else f"{written[:_LONGEST_QUOTE]}…"


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value))


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == number // 1 else None


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) != float("inf") else None


def _base64(value: Any) -> str | None:
    return value if isinstance(value, str) and is_base64(value) else None


def is_base64(text: str) -> bool:
    """Whether the API can decode it: either alphabet, with or without padding."""
    try:
        data = text.encode("ascii").rstrip(b"=").translate(_FROM_URLSAFE)
        binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except (ValueError, UnicodeEncodeError):
        return False
    return True


_SCALARS = {
    Kind.STRING: _string,
    Kind.BYTES: _base64,
    Kind.BOOL: _boolean,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
}
