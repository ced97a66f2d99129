"""Prompts and message histories, converted to a conversation that can be sent to a model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, is_
from os import PathLike
from stat import S_ISREG
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from midspan._types.messages import ROLES, History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.texts import NOT_JSON, check_text
from midspan.errors import ConfigError

Prompt = str | Part | PathLike[str] | Message | Sequence[str | Part | PathLike[str]]
"""A text, an image or file (as a Blob, or its Path), several of them, or a whole message."""
Messages = History | Iterable[Message]

_STRINGS = (str, bytes)
_PARTS = (Text, Blob, ToolResult, Opaque, Thought)
_NOT_RUN = "was not run: the conversation continued without it"
_OMITTED = "(Earlier messages are omitted.)"
_MEDIA = ("image/", "audio/", "video/", "application/pdf")


def conversation(prompt: Prompt | None, messages: Messages | None) -> tuple[History, int]:
    """Return the messages with the prompt after them, and the number of messages before the prompt.

    Calls without results get error results if a prompt follows them. Without a prompt, calls at the end are to be run.
    """
    history = None if messages is None else _history(messages)
    if prompt is not None and not history:
        return History((to_message(prompt),)), 0
    if not history:
        raise ConfigError("nothing to ask; pass a prompt, or messages to continue")
    count = len(history)
    if prompt is not None:
        history = history.with_messages(_repair([*history, to_message(prompt)]))
    return history, count


def check_messages(messages: Any) -> list[Message]:
    """Return the messages of a conversation as a list. Raises ConfigError if they are not valid."""
    if isinstance(messages, Message | str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise ConfigError(f"messages must be a History or a list of Message, got {type(messages).__name__}")
    items = list(messages)
    for message in items:
        if not isinstance(message, Message) or message.role not in ("user", "model"):
            hint = '; write Message.user("…") instead of a dict' if isinstance(message, Mapping) else ""
            raise ConfigError(
                f"a conversation consists of Message objects of user and model, got {message!r:.80}{hint}"
            )
        if not isinstance(message.parts, tuple):
            raise ConfigError(f"the parts of a Message must be a tuple, got {type(message.parts).__name__}")
    return items


def _history(messages: Messages) -> History:
    items = check_messages(messages)
    repaired = _repair(items)
    if isinstance(messages, History) and len(repaired) == len(items) and all(map(is_, repaired, items)):
        return messages  # with everything that was derived from it
    return History(repaired)


def to_message(prompt: Any) -> Message:
    """Return a prompt as a message of the user."""
    if isinstance(prompt, Message):
        if prompt.role != "user":
            raise ConfigError("a prompt must be a message of the user; pass messages of the model as messages=")
        return prompt
    is_single = isinstance(prompt, _STRINGS) or not isinstance(prompt, Sequence)
    parts = (_part(prompt),) if is_single else tuple(map(_part, prompt))
    for part in parts:
        if type(part) is not Text or part.text.strip():
            return Message("user", parts)
    raise ConfigError("the prompt is empty")


def to_turn(role: str, content: Any) -> Message:
    """Return a turn of a conversation: text, parts, the calls of a model, or the results of tools."""
    if not isinstance(role, str) or role not in ROLES:
        raise ConfigError(f"unknown role {role!r}; known roles: {', '.join(ROLES)}")
    is_single = isinstance(content, str | bytes | Mapping | Struct) or not isinstance(content, Iterable)
    items = [content] if is_single else list(content)
    is_model = ROLES[role] == "model"
    if isinstance(content, Message):
        message = content
    elif is_model:
        message = Message("model", tuple(ToolCall.read(item) or _part(item) for item in items))
    else:
        message = to_message(items)
    if message.calls and not is_model:
        raise ConfigError("calls are made by the model; pass them with the role 'model'")
    if message.results and is_model:
        raise ConfigError("results are given to the model; pass them with the role 'user'")
    return replace(message, role=ROLES[role])


def _part(item: Any) -> Part:
    if isinstance(item, str):
        check_text(item, "the prompt")
        return Text(item)
    if isinstance(item, PathLike):
        return file_part(item)
    if isinstance(item, _PARTS):
        if isinstance(item, Text | Thought):
            check_text(item.text, f"the {type(item).__name__} in the prompt")
        return item
    if isinstance(item, ToolCall):
        raise ConfigError("calls are made by the model; a prompt cannot contain one")
    hint = "; pass bytes as Blob.of(data, media_type)" if isinstance(item, bytes) else ""
    raise ConfigError(f"a prompt consists of texts, parts and paths of files, got {type(item).__name__}{hint}")


def file_part(file: PathLike[str]) -> Part:
    """Return a file as a part of a prompt: text if it can be decoded as text, otherwise its bytes."""
    import mimetypes  # files are rare in prompts, and these are slow to import
    from pathlib import Path

    path = Path(file)
    media_type = mimetypes.guess_type(path.name)[0]
    try:
        is_regular = S_ISREG(path.stat().st_mode)  # a pipe or a device may never end
        data = path.read_bytes() if is_regular else b""
    except OSError as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is not a valid path: {error}") from error
    if not is_regular:
        raise ConfigError(f"{str(path)!r} is not a regular file")
    if b"\0" not in data and (media_type is None or not media_type.startswith(_MEDIA)):
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            pass  # it is not text, whatever its name says
    if media_type is None:
        raise ConfigError(f"cannot guess the media type of {str(path)!r}; pass Blob.of(data, media_type)")
    return Blob.of(data, media_type, name=path.name)


def _repair(messages: list[Message]) -> list[Message]:
    """Return the messages so that every call has exactly one result in the turn after it, as models demand.

    Results that are spread over several turns are put together, and missing ones become error results; calls at the
    very end are left to be run. Results whose calls are not in the conversation become text. Adjacent messages of the
    model are one turn: other frameworks keep its text and each of its calls in messages of their own.
    """
    repaired: list[Message] = []
    calls: tuple[ToolCall, ...] = ()
    for role, messages_of_turn in groupby(messages, key=attrgetter("role")):
        turn = _with_unique_ids(list(messages_of_turn))
        if role == "user":
            repaired += _with_results(calls, turn) if calls else map(_results_as_text, turn)
            calls = ()
            continue
        calls = tuple(call for message in turn for call in message.calls)
        if calls and not repaired:
            repaired.append(Message.user(_OMITTED))
        repaired += turn
    if calls and len(calls) > len(repaired[-1].calls):  # calls at the end are run together
        repaired[-len(turn) :] = [Message("model", tuple(part for message in turn for part in message.parts))]
    return repaired


def _with_unique_ids(turn: list[Message]) -> list[Message]:
    """Number the calls, or the results, of a turn that have the same id: some frameworks use the name of the tool."""
    ids = [part.id for message in turn for part in message.parts if isinstance(part, ToolCall | ToolResult)]
    if len({*ids}) == len(ids):
        return turn
    counts: Counter[str] = Counter()

    def numbered(part: Part) -> Part:
        if not isinstance(part, ToolCall | ToolResult):
            return part
        counts[part.id] += 1
        return part if counts[part.id] == 1 else replace(part, id=f"{part.id}-{counts[part.id]}")

    return [message.with_parts(tuple(map(numbered, message.parts))) for message in turn]


def _with_results(calls: tuple[ToolCall, ...], turns: list[Message]) -> list[Message]:
    """Return the turns of the user after a turn with these calls: first all results, then everything else."""
    results = [result for turn in turns for result in turn.results]
    by_id: dict[str, list[ToolResult]] = {}
    for result in results:
        by_id.setdefault(result.id, []).append(result)
    matched = tuple(_match(call, by_id) for call in calls)
    is_complete = len(turns[0].results) == len(calls) == len(results)
    if is_complete and {*map(id, matched)} == {*map(id, results)}:
        return turns
    unmatched = {id(result) for same_id in by_id.values() for result in same_id}
    others = [
        turn.with_parts(tuple(part for part in turn.parts if type(part) is not ToolResult or id(part) in unmatched))
        if turn.results
        else turn
        for turn in turns
    ]
    return [Message("user", matched), *(_results_as_text(turn) for turn in others if turn.parts)]


def _match(call: ToolCall, by_id: dict[str, list[ToolResult]]) -> ToolResult:
    """Return the next result with the id of a call, under the call's name: some APIs do not name results."""
    if not by_id.get(call.id):
        return _not_run(call)
    result = by_id[call.id].pop(0)
    return result if result.name == call.name else replace(result, name=call.name)


def _results_as_text(turn: Message) -> Message:
    if not turn.results:
        return turn
    texts = {id(result): Text(f"{result.name or 'A tool'} returned: {_json(result.value)}") for result in turn.results}
    return Message(turn.role, tuple(texts.get(id(part), part) for part in turn.parts))


def _json(value: Any) -> str:
    try:
        return json.encode(value).decode()
    except NOT_JSON:
        return repr(value)


def _not_run(call: ToolCall) -> ToolResult:
    return call.error_result(f"{call.name} {_NOT_RUN}")
