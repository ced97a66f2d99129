"""Where a conversation stands: what was asked last, what has been done about it, what came before."""

from msgspec import Struct

from midspan.types.messages import History, Message
from midspan.types.parts import Text, ToolCall, ToolResult

Done = tuple[ToolCall, ToolResult]


class Situation(Struct, frozen=True):
    text: str
    """What the user said last."""
    done: tuple[Done, ...] = ()
    """The calls made since, each with its result."""
    answered: tuple[str, ...] = ()
    """What the user said before that, if the model only asked back each time: the first is the request itself."""
    earlier: tuple[Done, ...] = ()
    """The calls that were made about those."""
    last_calls: tuple[ToolCall, ...] = ()
    """The calls of the request before this one."""
    calls_so_far: int = 0


def situation(history: History) -> Situation:
    messages = history.messages
    at = _last_request(messages)
    if at < 0:
        return Situation("", calls_so_far=len(_calls(messages)))
    first = _first_request(messages, at)
    return Situation(
        _said(messages[at]),
        done=_done(messages[at:]),
        answered=tuple(said for message in messages[first:at] if (said := _said(message))),
        earlier=_done(messages[first:at]),
        last_calls=_last_calls(messages[:at]),
        calls_so_far=len(_calls(messages)),
    )


def _last_request(messages: tuple[Message, ...]) -> int:
    return next((at for at in range(len(messages) - 1, -1, -1) if _said(messages[at])), -1)


def _said(message: Message) -> str:
    """The words of a user; empty for a model's turn, and for one in which tools speak."""
    if message.role != "user" or message.results:
        return ""
    return "\n".join(part.text for part in message.parts if type(part) is Text).strip()


def _done(messages: tuple[Message, ...]) -> tuple[Done, ...]:
    results = {part.id: part for message in messages for part in message.parts if type(part) is ToolResult}
    return tuple((call, results[call.id]) for call in _calls(messages) if call.id in results)


def _calls(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    return tuple(part for message in messages for part in message.parts if type(part) is ToolCall)


def _first_request(messages: tuple[Message, ...], at: int) -> int:
    """Back through the model's questions to the request that they were about."""
    while at >= 2 and _is_question(messages[at - 1]) and (before := _last_request(messages[: at - 1])) >= 0:
        at = before
    return at


def _is_question(message: Message) -> bool:
    return message.role == "model" and not message.calls and message.text.rstrip().endswith("?")


def _last_calls(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    while (request := _last_request(messages)) >= 0:
        if calls := _calls(messages[request:]):
            return calls
        messages = messages[:request]
    return ()
