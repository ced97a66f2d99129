"""What `replay_traffic` checks of a row of another provider than Gemini. `provider_traffic` has the wires.

- The request, read as our own values and encoded again, equals the recorded one.
- The response becomes a message or a typed error; the message, encoded as part of the next request, equals what the
  service sent. A stream gives the same in any pieces.
- Where a later row of the same conversation sends the results of this row's calls, its request is built again with our
  own reading of this response in place of what the client sent.
"""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from provider_traffic import InteractionsWire, Json, Wire, arguments_in, events_of, wire_of, without_nulls
from traffic_rules import Difference, first_difference

from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import ToolCall
from midspan._types.texts import replace_surrogates
from midspan.errors import MalformedResponseError, ProviderError

Row = dict[str, Any]


def has_messages(row: Row, wire: Wire) -> bool:
    """Whether a request has messages; some only name a prompt or a conversation on the server."""
    request = row["request_json"]
    return isinstance(request, dict) and isinstance(request.get(wire.messages_field), list | str)


def check_provider_row(row: Row, wire: Wire, conversation: list[Row], rules: set[str]) -> bool:
    """Check a row, and return whether a later row answers its calls."""
    request = row["request_json"]
    config = None
    if has_messages(row, wire):
        try:
            config = _check_request(request, wire, rules)
        except Exception:
            if row["status"] not in _REJECTED:
                raise
            rules.add("rejected request")
    else:
        rules.add("no request recorded")
    response = _response(row, wire, rules)
    if response is None:
        return False
    sent = wire.sent(row)
    if sent is not None and config is not None:
        history = History([Message.user("?"), response.message, Message.user("?")])
        body = wire.encode(ModelRequest(config, history), {})
        sent_back = without_nulls(wire.sent_back(body))
        _expect(_with_our_ids(sent, sent_back), sent_back, "the message that is sent back")
    return any(
        _check_loop(wire, response, later)
        for later in conversation
        if later["index"] > row["index"]
        and later["provider"] == row["provider"]
        and isinstance(wire_of(later), type(wire))
        and has_messages(later, wire)
    )


_REJECTED = (400, 413, 422)
"""Statuses that say that the request itself is invalid."""


def _check_request(request: Json, wire: Wire, rules: set[str]) -> RequestConfig:
    canonical = wire.canonical(_copy(request))
    if without_nulls(request) != canonical:
        rules.add("client's form")
    read = wire.read(_copy(canonical))
    _expect(wire.normalized(_copy(canonical)), wire.normalized(wire.encode(read, canonical)), "request")
    return read.config


def _with_our_ids(sent: Any, sent_back: Any) -> Any:
    """What was sent; calls to which the service gave no id have ours, and their arguments are written again."""
    if not isinstance(sent, dict) or len(sent["calls"]) != len(sent_back["calls"]):
        return sent
    calls = []
    for call, ours in zip(sent["calls"], sent_back["calls"], strict=True):
        if not call["id"]:
            is_same = arguments_in(call["arguments"]) == arguments_in(ours["arguments"])
            call = {**call, "id": ours["id"], **({"arguments": ours["arguments"]} if is_same else {})}  # noqa: PLW2901
        calls.append(call)
    return {**sent, "calls": calls}


def check_interaction(row: Row, rules: set[str]) -> None:
    """Check a response of the Interactions API: it is decoded, in any pieces, and its steps go back unchanged."""
    wire, recorded = InteractionsWire(), row["response"]
    if row["status"] >= 300 or recorded is None or row["response_kind"] == "text":
        return
    if not isinstance(recorded, dict):
        _streamed(stream_of(row), wire)
        return
    try:
        response = _read(wire.decode, json.dumps(recorded).encode())
    except ProviderError:
        if "status" in recorded and recorded["status"] != "failed":
            raise
        rules.add("no message")
        return
    _expect(recorded.get("steps") or [], wire.steps_sent_back(response.message), "the steps that are sent back")


def _response(row: Row, wire: Wire, rules: set[str]) -> ModelResponse | None:
    """Return the response; None if it is an error, or has no message that is sent back."""
    recorded, is_text = row["response"], row["response_kind"] == "text"
    if recorded is None and row["status"] < 300:
        return None
    if row["status"] >= 300 and not (isinstance(recorded, dict) and "output" in recorded):
        _check_error(row, wire)
        return None
    is_stream = isinstance(recorded, str | list) and row["response_kind"] not in ("text", "json")
    try:
        if is_stream:
            response = _streamed(stream_of(row), wire)
        else:
            response = _read(wire.decode, str(recorded).encode() if is_text else json.dumps(recorded).encode())
    except MalformedResponseError:
        if is_stream:
            is_right = all(isinstance(event, dict) for event in events_of(row))
        else:
            is_right = isinstance(recorded, dict) and wire.has_message(recorded)
        if is_right:
            raise
        rules.add("not JSON" if is_text else "no message")
        return None
    except ProviderError:
        return None  # the service reports an error in a response or a stream that has a good status
    if is_text:
        raise Difference("a text that is not JSON is accepted as a response")
    if is_stream and not any(wire.is_end(event) for event in events_of(row) if isinstance(event, dict)):
        if response.finish_reason is not FinishReason.CUT:
            raise Difference("the stream does not say why it ends, and the response is not cut")
        rules.add("cut stream")
        return None
    return response


def _check_error(row: Row, wire: Wire) -> None:
    """Check that an error response becomes an exception of a type of its own with the message of the service."""
    recorded = row["response"]
    body = recorded if isinstance(recorded, str) else "" if recorded is None else json.dumps(recorded)
    error = wire.error(row["status"], body.encode(errors="replace"))
    if type(error) is ProviderError:
        raise Difference(f"the error has no type of its own: {error}")
    fields = recorded.get("error") if isinstance(recorded, dict) else None
    message = fields.get("message") if isinstance(fields, dict) else fields
    if isinstance(message, str) and replace_surrogates(message) not in str(error):
        raise Difference(f"the exception does not have the message of the service: {error}")


def _read(read: Callable[..., ModelResponse], *args: Any) -> ModelResponse:
    """Return what a decoder reads, or raise what a client does."""
    try:
        return read(*args)
    except _UNEXPECTED as error:
        raise MalformedResponseError(f"{type(error).__name__}: {error}") from error


_UNEXPECTED = (msgspec.MsgspecError, ValueError, RecursionError, LookupError, TypeError, AttributeError)
"""What the client of every provider turns into a MalformedResponseError."""


def stream_of(row: Row) -> bytes:
    """The bytes of a recorded stream."""
    recorded = row["response"]
    if isinstance(recorded, str):
        return recorded.encode()
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in recorded)


def _streamed(data: bytes, wire: Wire | InteractionsWire) -> ModelResponse:
    chance = random.Random(len(data))  # noqa: S311 - pieces of any size, the same in each run
    responses = []
    for sizes in ((len(data),), (1,), (1, 300)):
        decoder = wire.decoder()
        at = 0
        while at < len(data):
            size = sizes[0] if len(sizes) == 1 else chance.randint(*sizes)
            for _ in decoder.feed(data[at : at + size]):
                pass
            at += size
        for _ in decoder.end():
            pass
        responses.append(decoder.response())
    if len({_LOCAL_ID.sub(b"our-id", msgspec.json.encode(response)) for response in responses}) > 1:
        raise Difference("the stream gives another response in other pieces")
    return responses[0]


_LOCAL_ID = re.compile(rb"midspan_[0-9a-f]{16}")


def _check_loop(wire: Wire, response: ModelResponse, later: Row) -> bool:
    """Build the request of a later row with our own reading of this response; whether it answers these calls."""
    recorded = later["request_json"]
    calls = {part.id for part in response.message.parts if isinstance(part, ToolCall)}
    if not calls or later["status"] in _REJECTED:
        return False
    recorded = wire.canonical(_copy(recorded))
    request = wire.read(_copy(recorded))
    messages = list(request.history)
    places = [at for at, message in enumerate(messages) if calls & {call.id for call in message.calls}]
    if not places:
        return False
    first, last = places[0], places[-1]
    while first and messages[first - 1].role == "model":
        first -= 1
    ours = [*messages[:first], response.message, *messages[last + 1 :]]
    rebuilt = wire.encode(replace(request, history=History(ours)), recorded)
    _expect(wire.outline(wire.normalized(_copy(recorded))), wire.outline(wire.normalized(rebuilt)), "the loop")
    return True


def _expect(expected: Any, actual: Any, what: str) -> None:
    if expected != actual:
        raise Difference(f"{what}: {first_difference(actual, expected)}")


def _copy(request: Json) -> Any:
    return json.loads(json.dumps(request))
