"""Prompts and message histories, converted to a conversation that can be sent to a model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from os import PathLike
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from midspan._types.messages import ROLES, History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.texts import check_text
from midspan.errors import ConfigError

Prompt = str | Part | PathLike[str] | Message | Sequence[str | Part | PathLike[str]] | None
"""A text, an image or file (as a Blob, or its Path), several of them, or a whole message; None adds nothing."""
Messages = History | Iterable[Message]

_PARTS = (Blob, ToolResult, Opaque, Thought)
_REPAIRED = "repaired"
"""The key under which a history has the number of its first messages that need no repair."""
_OMITTED = "(Earlier messages are omitted.)"
_MEDIA = ("image/", "audio/", "video/", "application/pdf")


def conversation(prompt: Prompt, messages: Messages | None) -> tuple[History, int]:
    """Return the messages with the prompt after them, and the number of messages before the prompt.

    Calls without results get error results if a prompt follows them. Without a prompt, calls at the end are to be run.
    """
    if type(prompt) is str and messages is None:  # the usual case, in which nothing needs repair
        return History((to_message(prompt),)), 0
    items = check_messages(messages or ())
    if prompt is not None:
        items.append(to_message(prompt))
    if not items:
        raise ConfigError("nothing to ask; pass a prompt, or messages to continue")
    earlier = messages if isinstance(messages, History) else History()
    count, (known, _) = len(earlier), earlier.cached(_REPAIRED)
    repaired = tuple(_repair(items, known))
    # An unchanged history is continued, so that values derived from it are not computed again.
    history = earlier.append(*repaired[count:]) if repaired[:count] == earlier.messages else History(repaired)
    history.cache(_REPAIRED, True)
    return history, len(repaired) - (prompt is not None)


def check_messages(messages: Messages) -> list[Message]:
    """Return the messages of a conversation as a list. Raises ConfigError if one is not a Message."""
    items: list[Any] = list(messages) if isinstance(messages, Iterable) else [messages]
    for message in items:
        is_message = isinstance(message, Message) and message.role in ("user", "model")
        if not is_message or not isinstance(message.parts, tuple):
            example = 'such as Message.user("…")'
            raise ConfigError(f"messages must be Message objects of user or model, {example}, got {message!r:.80}")
    return items


def to_message(prompt: Any) -> Message:
    """Return a prompt as a message of the user."""
    if isinstance(prompt, Message):
        if prompt.role != "user":
            raise ConfigError("a prompt must be a message of the user; pass messages of the model as messages=")
        return prompt
    parts = tuple(map(_part, _items(prompt)))
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return Message("user", parts)


def message_of_role(role: str, content: Any) -> Message:
    """Return a turn of a conversation: text, parts, the calls of a model, or the results of tools."""
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}; known roles: {', '.join(ROLES)}")
    if isinstance(content, Message):
        return replace(content, role=ROLES[role])
    if ROLES[role] == "model":
        return Message("model", tuple(ToolCall.read(item) or _part(item) for item in _items(content)))
    return to_message(content)


def _items(content: Any) -> Iterable[Any]:
    if type(content) is str:  # the usual case; the checks below are slow
        return (content,)
    is_single = isinstance(content, str | bytes | Mapping | Struct) or not isinstance(content, Iterable)
    return (content,) if is_single else content


def _part(item: Any) -> Part:
    if type(item) is not str and isinstance(item, PathLike):  # the second check is slow
        return file_part(item)
    part = Text(item) if isinstance(item, str) else item
    if isinstance(part, Text):
        check_text(part.text, "the prompt")
    elif not isinstance(part, _PARTS):
        raise ConfigError(f"a prompt consists of texts, parts and paths of files, got {type(item).__name__}")
    return part


def file_part(file: PathLike[str]) -> Text | Blob:
    """Return a file as a part of a prompt."""
    from pathlib import Path  # files are rare in prompts

    path = Path(file)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{str(path)!r} is not a regular file")  # a pipe or a device may never end
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {getattr(error, 'strerror', error)}") from error
    return data_part(data, path.name)


def data_part(data: bytes, name: str, media_type: str | None = None) -> Text | Blob:
    """Return data as a part of a prompt: text if it can be decoded as text, otherwise its bytes."""
    import mimetypes  # slow to import

    from midspan.tools.execution import media_type_of

    guessed, compression = mimetypes.guess_type(name)
    media_type = media_type or (guessed if compression is None else None)  # not that of the compressed file
    if media_type in (None, "application/octet-stream"):
        media_type = media_type_of(data[:16])
    if b"\0" not in data and (media_type is None or not media_type.startswith(_MEDIA)):
        with suppress(UnicodeDecodeError):  # it is not text, although its name suggests it
            return Text(data.decode("utf-8-sig"))
    if media_type is None:
        problem = f"cannot guess the media type of {name!r}, which is not UTF-8 text"
        raise ConfigError(f"{problem}; in Python, pass Blob.of(data, media_type)")
    return Blob.of(data, media_type, name=name)


def _repair(messages: list[Message], known: int) -> list[Message]:
    """Return the messages so that every call has exactly one result in the turn after it, as APIs require.

    Results that are spread over several turns are put together, and missing ones become error results; calls at the
    very end are left to be run. Results whose calls are not in the conversation become text. Adjacent messages of the
    model are one turn: other frameworks keep its text and each of its calls in messages of their own.

    The first `known` messages were repaired before. They are skipped if the conversation continues with a new turn.
    """
    if not 0 < known < len(messages) or messages[known - 1].role != "user" or messages[known].role != "model":
        known = 0
    repaired = messages[:known]
    calls: tuple[ToolCall, ...] = ()
    for role, messages_of_turn in groupby(messages[known:], key=attrgetter("role")):
        turn = _with_unique_ids(list(messages_of_turn))
        if role == "user":
            repaired += _with_results(calls, turn) if calls else map(_results_as_text, turn)
            calls = ()
            continue
        calls = tuple(call for message in turn for call in message.calls)
        if calls and not repaired:
            repaired.append(Message.user(_OMITTED))
        repaired += turn
    if len(calls) > len(repaired[-1].calls):  # calls at the end are run together
        repaired[-len(turn) :] = [Message("model", tuple(part for message in turn for part in message.parts))]
    return repaired


def _with_unique_ids(turn: list[Message]) -> list[Message]:
    """Number the calls, or the results, of a turn that have the same id: some frameworks use the name of the tool."""
    ids = [
        (type(part), part.id) for message in turn for part in message.parts if isinstance(part, ToolCall | ToolResult)
    ]
    if len({*ids}) == len(ids):
        return turn
    counts: Counter[tuple[type[Part], str]] = Counter()

    def numbered(part: Part) -> Part:
        if not isinstance(part, ToolCall | ToolResult):
            return part
        counts[type(part), part.id] += 1
        count = counts[type(part), part.id]
        return part if count == 1 else replace(part, id=f"{part.id}-{count}")

    return [message.with_parts(tuple(map(numbered, message.parts))) for message in turn]


def _with_results(calls: tuple[ToolCall, ...], turns: list[Message]) -> list[Message]:
    """Return the turns of the user after a turn with these calls: first all results, then everything else."""
    unmatched = {result.id: result for turn in turns for result in turn.results}
    matched = tuple(_result(call, unmatched.pop(call.id, None)) for call in calls)
    if turns[0].results == matched and not unmatched:
        return turns
    repaired = [Message("user", matched)]
    for turn in turns:
        parts = tuple(part for part in turn.parts if type(part) is not ToolResult or part.id in unmatched)
        if parts:
            repaired.append(_results_as_text(turn.with_parts(parts) if turn.results else turn))
    return repaired


def _result(call: ToolCall, result: ToolResult | None) -> ToolResult:
    """Return the result of a call under the call's name: some APIs do not name results."""
    if result is None:
        return call.error_result(f"{call.name} was not run: the conversation continued without it")
    return result if result.name == call.name else replace(result, name=call.name)


def _results_as_text(turn: Message) -> Message:
    if not turn.results:
        return turn
    return Message(turn.role, tuple(_as_text(part) if isinstance(part, ToolResult) else part for part in turn.parts))


def _as_text(result: ToolResult) -> Text:
    value = json.encode(result.model_value, enc_hook=repr).decode()
    return Text(f"{result.name or 'A tool'} returned: {value}")
