"""What a user says, in any of the ways he may say it, as a conversation that a model can be asked to go on with."""

import mimetypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wasat.errors import ConfigError
from wasat.tools.failure import failed
from wasat.types.messages import History, Message
from wasat.types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult

Prompt = str | Part | Path | Message | Sequence[str | Part | Path]
"""A text, an image or file (as a Blob, or where it is as a Path), several of them, or a whole message."""
Messages = History | Iterable[Message]

_PARTS = (Text, Thought, Blob, ToolCall, ToolResult, Opaque)
_GONE_ON = "was not run: the conversation went on without it"


def conversation(prompt: Prompt | None, messages: Messages) -> History:
    """The messages with the prompt after them; calls that a new prompt leaves unanswered are answered first."""
    history = messages if isinstance(messages, History) else History(_mended(messages))
    if prompt is None:
        if not len(history):
            raise ConfigError("there is nothing to ask: give a prompt, or messages to go on with")
        return history
    unanswered = history[-1].calls if len(history) and history[-1].role == "model" else ()
    if unanswered:
        history = history.plus(_not_run(unanswered))
    return history.plus(message_of(prompt))


def message_of(prompt: Any) -> Message:
    """One turn of the user."""
    if isinstance(prompt, Message):
        return prompt
    several = isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes)
    parts = tuple(_part(one) for one in (prompt if several else [prompt]))
    if not parts:
        raise ConfigError("the prompt is empty")
    return Message("user", parts)


def _part(given: Any) -> Part:
    if isinstance(given, str):
        return Text(given)
    if isinstance(given, Path):
        return file_part(given)
    if isinstance(given, _PARTS):
        return given
    hint = "; say of what kind bytes are with Blob.of(data, media_type)" if isinstance(given, bytes) else ""
    raise ConfigError(f"a prompt is made of texts, parts and paths of files, not of {type(given).__name__}{hint}")


def file_part(path: Path) -> Part:
    """A file as a part of a prompt: what can be read as text is text, everything else goes as it is."""
    media_type = mimetypes.guess_type(path.name)[0] or "unknown"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror}") from error
    if not media_type.startswith(_MEDIA):
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            pass  # then it is no text, whatever its name says
    if media_type == "unknown":
        raise ConfigError(f"of what kind {str(path)!r} is cannot be seen from its name; give Blob.of(data, media_type)")
    return Blob.of(data, media_type, name=path.name)


_MEDIA = ("image/", "audio/", "video/", "application/pdf")


def _mended(messages: Iterable[Message]) -> list[Message]:
    """A history that others made, with a result for every call: a model refuses one in which any is missing."""
    mended: list[Message] = []
    waiting: tuple[ToolCall, ...] = ()
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"messages are of the type Message, not {type(message).__name__}; see from_json")
        answered = {result.id for result in message.results} if message.role == "user" else set()
        missing = tuple(call for call in waiting if call.id not in answered)
        if missing and not answered:
            mended.append(_not_run(missing))
        elif missing:
            mended.append(message.edited((*message.parts, *_not_run(missing).parts)))
            waiting = ()
            continue
        waiting = message.calls if message.role == "model" else ()
        mended.append(message)
    return mended


def _not_run(calls: tuple[ToolCall, ...]) -> Message:
    return Message("user", tuple(failed(call, f"{call.name} {_GONE_ON}") for call in calls))
