"""What `replay_traffic` checks of a row of another provider than Gemini. `provider_traffic` has the wires.

- The request, read as our own values and encoded again, equals the recorded one.
- The response becomes a message or a typed error; the message, encoded as part of the next request, equals what the
  service sent. A stream gives the same in any pieces.
- Where a later row of the same conversation sends the results of this row's calls, its request is built again with our
  own reading of this response in place of what the client sent.
"""

import json
import random
from typing import Any

import msgspec
from msgspec.structs import replace
from provider_traffic import InteractionsWire, Json, Wire, wire_of, without_nulls
from traffic_rules import Difference, first_difference

from midspan._types.exchange import ModelRequest, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import ToolCall
from midspan.errors import MalformedResponseError, ProviderError

Row = dict[str, Any]


def check_provider_row(row: Row, conversation: list[Row], rules: set[str]) -> bool:
    """Check a row, and return whether a later row answers its calls."""
    request = row["request_json"]
    wire = wire_of(row["provider"], request)
    assert wire is not None
    if isinstance(request, dict) and not request.keys() & {"messages", "input"}:
        rules.add("another API")
        return False
    if isinstance(request, dict):
        encoded = wire.encode(wire.read(_copy(request)), request)
        _expect(wire.normalized(_copy(request)), wire.normalized(encoded), "request")
    else:
        rules.add("no request recorded")
    try:
        response = _response(row, wire)
    except MalformedResponseError:
        raise
    except ProviderError:
        return False  # the service reports an error in a response or a stream that has a good status
    if response is None:
        return False
    sent = wire.sent(row)
    if sent is not None:
        history = History([Message.user("?"), response.message, Message.user("?")])
        config = wire.read(_copy(request)).config if isinstance(request, dict) else None
        if config is not None:
            body = wire.encode(ModelRequest(config, history), {})
            _expect(sent, without_nulls(wire.sent_back(body)), "the message that is sent back")
    later_rows = [later for later in conversation if later["index"] > row["index"]]
    return any(_check_loop(wire, response, later) for later in later_rows if later["provider"] == row["provider"])


def check_interaction(row: Row) -> None:
    """Check a response of the Interactions API: it is decoded, in any pieces, and its steps go back unchanged."""
    wire, recorded = InteractionsWire(), row["response"]
    if row["status"] >= 400 or recorded is None:
        return
    if row["response_kind"] == "json":
        response = wire.decode(json.dumps(recorded).encode())
        _expect(recorded.get("steps") or [], wire.steps_sent_back(response.message), "the steps that are sent back")
    else:
        _streamed(stream_of(row), wire)


def _response(row: Row, wire: Wire) -> ModelResponse | None:
    recorded = row["response"]
    if recorded is None or row["response_kind"] == "text":
        return None
    if row["status"] >= 400 and not (isinstance(recorded, dict) and "output" in recorded):
        body = recorded.encode() if isinstance(recorded, str) else json.dumps(recorded).encode()
        error = wire.error(row["status"], body)
        if type(error) is ProviderError:
            raise Difference(f"the error has no type of its own: {error}")
        return None
    if row["response_kind"] in ("sse", "chunks"):
        return _streamed(stream_of(row), wire)
    return wire.decode(json.dumps(recorded).encode())


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
    if len({msgspec.json.encode(response) for response in responses}) > 1:
        raise Difference("the stream gives another response in other pieces")
    return responses[0]


def _check_loop(wire: Wire, response: ModelResponse, later: Row) -> bool:
    """Build the request of a later row with our own reading of this response; whether it answers these calls."""
    recorded = later["request_json"]
    calls = {part.id for part in response.message.parts if isinstance(part, ToolCall)}
    if not calls or not isinstance(recorded, dict):
        return False
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
