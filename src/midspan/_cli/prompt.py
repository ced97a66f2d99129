"""The prompt of a command: words, text from stdin, files and pages of the web; and what `-o` and `--schema` say."""

import asyncio
import json
import os
import re
import select
import stat
import sys
from pathlib import Path
from typing import Any

from midspan._cli.settings import valid_text
from midspan._cli.text import print_line
from midspan._types.parts import Blob, Text
from midspan.errors import ConfigError

_MAX_BYTES = 50_000_000
"""Of stdin, a file or a page: far more than any model accepts, far less than the memory of a computer."""
_SECONDS_BEFORE_NOTICE = 2.0
_MAX_REDIRECTS = 5
_URL = re.compile(r"https?://", re.IGNORECASE)
_FIELD = re.compile(r"(?P<name>\w+)(?:\s+(?P<type>\w+)(?P<many>\[\])?)?(?:\s*:\s*(?P<description>.+))?")
_TYPES = {
    **dict.fromkeys(("str", "string", "text"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
}


def read_prompt(words: list[str], files: list[str]) -> str | list[Any]:
    """Combine text from stdin, the words of the command line, and files. The file `-` is stdin."""
    question = " ".join(words).strip()
    question = "" if question == "-" else valid_text(question, "the question")
    piped = "" if "-" in files else _read_text().strip()
    text = "\n\n".join(filter(None, (piped, question)))
    if not text:
        hint = "in addition to the files" if files else 'for example midspan "What is 2 + 2?", or pipe one in'
        raise ConfigError(f"there is no question; pass one, {hint}")
    return [text, *map(_attachment, files)] if files else text


def _attachment(name: str) -> Any:
    if name == "-":
        data = _read_stdin()
        return _part(data, _media_type(data), "stdin")
    return _download(name) if _URL.match(name) else _check_file(name)


def _part(data: bytes, media_type: str | None, name: str) -> Text | Blob:
    if media_type is None or media_type.startswith("text/") or media_type.endswith(("json", "xml", "javascript")):
        try:
            return Text(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            if media_type is None:
                raise ConfigError(f"{name} is neither UTF-8 text nor an image, PDF or audio file") from error
    return Blob.of(data, media_type or "", name=name)


def _media_type(data: bytes) -> str | None:
    from midspan.tools.execution import media_type_of

    return media_type_of(data[:16])


def _read_text() -> str:
    try:
        return _read_stdin().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text; pass other data with --file -") from error


def has_piped_input() -> bool:
    """Return whether stdin is a pipe or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read_stdin() -> bytes:
    """Return what is piped in or redirected from a file; nothing from a terminal or /dev/null."""
    if not has_piped_input():
        return b""
    _explain_waiting()
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"stdin has more than {_MAX_BYTES:,} bytes, too much for any model")
    return data


def _explain_waiting() -> None:
    """Print a notice if nothing arrives on stdin, which the user may have left open by mistake."""
    try:
        if not select.select([sys.stdin], [], [], _SECONDS_BEFORE_NOTICE)[0]:
            print_line("waiting for text on stdin; end it with Ctrl-D, or run the command with </dev/null")
    except (OSError, ValueError):
        return  # Windows cannot wait for files


def _check_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"{name!r} is not a regular file" if path.exists() else f"no such file: {name!r}")
    if path.stat().st_size > _MAX_BYTES:
        raise ConfigError(f"the file {name!r} has more than {_MAX_BYTES:,} bytes, too much for any model")
    return path


def _download(url: str) -> Text | Blob:
    from midspan._http.messages import HttpRequest, Timeouts  # few prompts have addresses
    from midspan._http.transport import Transport

    async def fetch() -> tuple[bytes, str]:
        target = url
        async with Transport(Timeouts(connect=10, total=60), max_body_bytes=_MAX_BYTES) as transport:
            for _ in range(_MAX_REDIRECTS):
                response = await transport.send(HttpRequest("GET", target, {"user-agent": "midspan", "accept": "*/*"}))
                if response.status in (301, 302, 303, 307, 308):
                    from urllib.parse import urljoin

                    target = urljoin(target, response.header("location") or "")
                    continue
                if response.status != 200:
                    raise ConfigError(f"{url} answered {response.status}")
                return response.body, response.header("content-type") or ""
        raise ConfigError(f"{url} redirects more than {_MAX_REDIRECTS} times")

    data, content_type = asyncio.run(fetch())
    return _part(data, content_type.partition(";")[0].strip().lower() or _media_type(data), url.rsplit("/", 1)[-1])


def read_schema(text: str) -> dict[str, Any]:
    """Return a JSON Schema from a file, from JSON, or from a short form: `name, age int, tags str[]`."""
    path = Path(text).expanduser()
    if text.lstrip().startswith("{") or text.endswith(".json"):
        try:
            schema = json.loads(text if text.lstrip().startswith("{") else path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the schema {text!r}: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"the schema {text!r} is not valid JSON: {error}") from error
        if not isinstance(schema, dict):
            raise ConfigError(f"the schema {text!r} must be a JSON object")
        return schema
    properties = dict(map(_field, filter(None, map(str.strip, re.split(r"[,\n]", text)))))
    if not properties:
        raise ConfigError('--schema is empty; pass fields such as "name, age int", or a file with a JSON Schema')
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _field(text: str) -> tuple[str, dict[str, Any]]:
    match = _FIELD.fullmatch(text)
    if match is None or (match["type"] or "str") not in _TYPES:
        raise ConfigError(
            f"{text!r} is not a field; write NAME, NAME TYPE or NAME TYPE: DESCRIPTION, with a type such as "
            "str, int, float, bool or str[]"
        )
    schema: dict[str, Any] = {"type": _TYPES[match["type"] or "str"]}
    if match["many"]:
        schema = {"type": "array", "items": schema}
    return match["name"], schema | ({"description": match["description"]} if match["description"] else {})
