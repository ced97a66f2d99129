"""The prompt of a command: words, text from stdin, files and pages of the web; and what `-o` and `--schema` say."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO

from midspan._types.parts import Blob, Text
from midspan.errors import ConfigError

_MAX_BYTES = 50_000_000
"""Of stdin, a file or a page: far more than any model accepts, far less than the memory of a computer."""
_MAX_REDIRECTS = 5
_MEDIA = ("image/", "audio/", "video/", "application/pdf")
_URL = re.compile(r"https?://", re.IGNORECASE)
_FIELD = re.compile(r"(?P<name>\w+)(?:\s+(?P<type>\w+)(?P<many>\[\])?)?(?:\s*:\s*(?P<description>.+))?")
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def read_prompt(words: list[str], files: list[str]) -> str | list[Any]:
    """Combine text from stdin, the words of the command line, and files. The file `-` is stdin."""
    try:
        piped = "" if "-" in files else _read_stdin().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text; pass other data with --file -") from error
    text = "\n\n".join(filter(None, (piped, " ".join(words).strip())))
    if not text:
        hint = "in addition to the files" if files else 'for example midspan "What is 2 + 2?", or pipe one in'
        raise ConfigError(f"there is no question; pass one, {hint}")
    return [text, *map(_attachment, files)] if files else text


def _attachment(name: str) -> Text | Blob:
    if name == "-":
        return _part(_read_stdin(), None, "stdin")
    if _URL.match(name):
        return asyncio.run(_download(name))
    path = Path(name).expanduser()
    if not path.is_file():  # a pipe or a device may never end
        raise ConfigError(f"{name!r} is not a file")
    from mimetypes import guess_type  # slow to import

    with path.open("rb") as file:
        return _part(_read(file, name), guess_type(path.name)[0], path.name)


def _part(data: bytes, media_type: str | None, name: str) -> Text | Blob:
    """Return text if the data can be decoded as text, otherwise the data."""
    from midspan.tools.execution import media_type_of

    media_type = media_type or media_type_of(data[:16])
    if media_type is None or not media_type.startswith(_MEDIA):
        try:
            return Text(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name} is neither UTF-8 text nor an image, PDF, audio or video file") from error
    return Blob.of(data, media_type, name=name)


def _read_stdin() -> bytes:
    """Return what is piped in or redirected from a file; nothing from a terminal."""
    return b"" if sys.stdin.isatty() else _read(sys.stdin.buffer, "stdin")


def _read(stream: BinaryIO, name: str) -> bytes:
    data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{name} has more than {_MAX_BYTES:,} bytes, too much for any model")
    return data


async def _download(url: str) -> Text | Blob:
    from urllib.parse import urljoin  # few prompts have addresses

    from midspan._http.messages import HttpRequest, Timeouts
    from midspan._http.transport import Transport

    target = url
    async with Transport(Timeouts(connect=10, total=60), max_body_bytes=_MAX_BYTES) as transport:
        for _ in range(_MAX_REDIRECTS + 1):
            response = await transport.send(HttpRequest("GET", target, {"user-agent": "midspan", "accept": "*/*"}))
            if response.status == 200:
                media_type = (response.header("content-type") or "").partition(";")[0].strip().lower()
                return _part(response.body, media_type or None, url.rsplit("/", 1)[-1])
            if response.status not in (301, 302, 303, 307, 308):
                raise ConfigError(f"{url} answered {response.status}")
            target = urljoin(target, response.header("location") or "")
    raise ConfigError(f"{url} redirects more than {_MAX_REDIRECTS} times")


def read_schema(text: str) -> dict[str, Any]:
    """Return a JSON Schema from a file, from JSON, or from a short form: `name, age int, tags str[]`."""
    is_json = text.lstrip().startswith("{")
    if is_json or text.endswith(".json"):
        try:
            schema = json.loads(text if is_json else Path(text).expanduser().read_bytes())
        except ValueError as error:
            raise ConfigError(f"the schema {text!r} is not valid JSON: {error}") from error
        if not isinstance(schema, dict):
            raise ConfigError(f"the schema {text!r} must be a JSON object")
        return schema
    properties = dict(map(_field, text.split(",")))
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _field(text: str) -> tuple[str, dict[str, Any]]:
    match = _FIELD.fullmatch(text.strip())
    if match is None or (match["type"] or "str") not in _TYPES:
        forms = "NAME, NAME TYPE or NAME TYPE: DESCRIPTION, with a type such as str, int, float, bool or str[]"
        raise ConfigError(f"{text.strip()!r} is not a field; write {forms}")
    schema: dict[str, Any] = {"type": _TYPES[match["type"] or "str"]}
    if match["many"]:
        schema = {"type": "array", "items": schema}
    return match["name"], schema | ({"description": match["description"]} if match["description"] else {})
