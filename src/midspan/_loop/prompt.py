"""What a user says, in any of the ways he may say it, as a conversation that a model can be asked to go on with."""

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from os import PathLike
from stat import S_ISREG
from typing import Any

from msgspec import json
from msgspec.structs import replace

from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.texts import check_text
from midspan.errors import ConfigError

Prompt = str | Part | PathLike[str] | Message | Sequence[str | Part | PathLike[str]]
"""A text, an image or file (as a Blob, or where it is as a Path), several of them, or a whole message."""
Messages = History | Iterable[Message]

_PARTS = (Text, Blob, ToolResult, Opaque, Thought)
_ROLES = ("user", "model")
_GONE_ON = "was not run: the conversation went on without it"
_CUT = "(What was said before is left out.)"


def conversation(prompt: Prompt | None, messages: Messages | None) -> tuple[History, int]:
    """The messages with the prompt after them, and how many of them were there before.

    Calls that a new prompt leaves unanswered are answered first; without a prompt, those at the end are to be run.
    """
    history = History() if messages is None else _history(messages)
    given = len(history)
    if prompt is not None:
        history = (
            history.with_messages(_mended([*history, message_of(prompt)]))
            if given
            else history.append(message_of(prompt))
        )
    if not len(history):
        raise ConfigError("there is nothing to ask: give a prompt, or messages to go on with")
    return history, given


def messages_of(given: Any) -> list[Message]:
    """The messages of a conversation, with what is wrong in them told."""
    if isinstance(given, Message | str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"messages are a History or a list of Message, not {type(given).__name__}")
    messages = list(given)
    for message in messages:
        if not isinstance(message, Message) or message.role not in _ROLES:
            raise ConfigError(f"a conversation is made of Message, of the user or the model, not of {message!r:.80}")
        if not isinstance(message.parts, tuple):
            raise ConfigError(f"the parts of a Message are a tuple, not a {type(message.parts).__name__}")
    return messages


def _history(messages: Messages) -> History:
    given = messages_of(messages)
    mended = _mended(given)
    if isinstance(messages, History) and len(mended) == len(given) and all(map(is_, mended, given)):
        return messages  # with what is encoded of it
    return History(mended)


def message_of(prompt: Any) -> Message:
    """One turn of the user."""
    if isinstance(prompt, Message):
        return prompt
    several = isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes)
    parts = tuple(part_of(one) for one in (prompt if several else [prompt]))
    if all(type(part) is Text and not part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return Message("user", parts)


def part_of(given: Any) -> Part:
    """One piece of what a user says."""
    if isinstance(given, str):
        check_text(given, "the prompt")
        return Text(given)
    if isinstance(given, PathLike):
        return filepart_of(given)
    if isinstance(given, _PARTS):
        if isinstance(given, Text | Thought):
            check_text(given.text, f"the {type(given).__name__} in the prompt")
        return given
    if isinstance(given, ToolCall):
        raise ConfigError("calls are made by the model; a prompt cannot hold one")
    hint = "; say of what kind bytes are with Blob.of(data, media_type)" if isinstance(given, bytes) else ""
    raise ConfigError(f"a prompt is made of texts, parts and paths of files, not of {type(given).__name__}{hint}")


def filepart_of(file: PathLike[str]) -> Part:
    """A file as a part of a prompt: what can be read as text is text, everything else goes as it is."""
    import mimetypes  # files are rare in prompts, and these slow to import
    from pathlib import Path

    path = Path(file)
    media_type = mimetypes.guess_type(path.name)[0] or "unknown"
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            raise ConfigError(f"{str(path)!r} is no file that can be read as a whole")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"no file can be called {str(path)!r}: {error}") from error
    if not media_type.startswith(_MEDIA):
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            pass  # then it is no text, whatever its name says
    if media_type == "unknown":
        raise ConfigError(f"of what kind {str(path)!r} is cannot be seen from its name; give Blob.of(data, media_type)")
    return Blob.of(data, media_type, name=path.name)


_MEDIA = ("image/", "audio/", "video/", "application/pdf")


def _mended(messages: list[Message]) -> list[Message]:
    """A history in which every call has its one result in the turn after it, as models demand.

    Results that others spread over several turns come together, and those that are missing are made up; calls at the
    very end are left to be run. Of a conversation that was cut, results without their calls become words.
    """
    mended: list[Message] = []
    if messages and messages[0].role == "model" and messages[0].calls:
        mended.append(Message.user(_CUT))
    place = 0
    while place < len(messages):
        message = messages[place]
        mended.append(message if message.role == "model" or not message.results else _without_calls(message))
        place += 1
        if message.role != "model" or not message.calls:
            continue
        end = place
        while end < len(messages) and messages[end].role == "user":
            end += 1
        if end > place:
            mended += _answered(message.calls, messages[place:end])
        elif end < len(messages):
            mended.append(Message("user", tuple(_not_run(call) for call in message.calls)))
        place = end
    return mended


def _answered(calls: tuple[ToolCall, ...], turns: list[Message]) -> list[Message]:
    """Turns of the user after a turn with these calls: first all results, then whatever else there is."""
    given = [result for turn in turns for result in turn.results]
    found: dict[str, list[ToolResult]] = {}
    for result in given:
        found.setdefault(result.id, []).append(result)
    results = tuple(_result_of(call, found) for call in calls)
    if len(turns[0].results) == len(calls) == len(given) and {*map(id, results)} == {*map(id, given)}:
        return turns
    rest = [(turn, tuple(part for part in turn.parts if type(part) is not ToolResult)) for turn in turns]
    others = [turn if len(parts) == len(turn.parts) else turn.with_parts(parts) for turn, parts in rest if parts]
    return [Message("user", results), *others]


def _result_of(call: ToolCall, found: dict[str, list[ToolResult]]) -> ToolResult:
    """The next result under the id of a call, and under its name: not every API tells the names of results."""
    if not found.get(call.id):
        return _not_run(call)
    result = found[call.id].pop(0)
    return result if result.name == call.name else replace(result, name=call.name)


def _without_calls(turn: Message) -> Message:
    """A turn of the user whose results answer calls that are not there any more."""
    words = {id(one): Text(f"{one.name or 'A tool'} gave: {_json(one.value)}") for one in turn.results}
    return Message(turn.role, tuple(words.get(id(part), part) for part in turn.parts))


def _json(value: Any) -> str:
    try:
        return json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _not_run(call: ToolCall) -> ToolResult:
    return call.error_result(f"{call.name} {_GONE_ON}")
