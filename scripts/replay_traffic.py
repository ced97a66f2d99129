"""Replay recorded Gemini traffic through the wire layer: python scripts/replay_traffic.py FILE…

Each row of a file is one HTTP exchange (see shared/data/README.md for the format). For every row:

- each document of the response, decoded and encoded again, equals the recorded JSON, and so does the request;
- the response becomes a message or an exception, and the message is sent back as the server sent it;
- a stream gives the same parts and the same message in one piece, byte by byte and in random pieces;
- if a later row of the same conversation has the results of the calls of this row, the contents that Midspan builds
  from this response and those results are exactly what `traffic_expected` computes from the recording alone, and
  equal what that row sent.

The request of a recorded client may differ only by a rule of RULES. Prints how many rows each rule covered, each
failing row with its reason, and the counts last on one line. Exits 1 if a row fails.
"""

import project_python  # noqa: F401 - it must come first, see its docstring

# isort: split
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from provider_rows import check_interaction, check_provider_row
from provider_traffic import wire_of
from row_files import lines_of, without_surrogates
from traffic_expected import as_list, expected_parts, expected_result, matched, open_calls, signed, without_ids
from traffic_rules import RULES, Difference, Sides, after_rules, camel_cased, first_difference, without_nulls

from midspan._types.exchange import ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Part, ToolResult
from midspan.errors import ProviderError
from midspan.providers.gemini import decode, encode, proto, wire
from midspan.providers.gemini.capabilities import Api, Capabilities, capabilities_of
from midspan.providers.gemini.errors import parse_error
from midspan.providers.gemini.stream import StreamDecoder

Row = dict[str, Any]
Parsed = list[Any]


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    covered: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    total = loops = 0
    for file in files:
        rows, unreadable = read_rows(Path(file))
        total += len(rows) + len(unreadable)
        failures += unreadable
        for conversation in conversations(rows):
            looped = False
            for row in conversation:
                rules: set[str] = set()
                looped |= check_safely(row, conversation, rules, failures)
                covered.update(rules)
            loops += looped
    for name, count in sorted(covered.items()):
        print(f"{count:5} rows  {name}: {RULES[name]}")
    for id, reason in failures:
        print(f"FAILED {id}: {reason}")
    print(f"{total} rows, {loops} tool loops, {total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def read_rows(file: Path) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return the rows of a file, and the errors of invalid lines by file and line."""
    rows: list[Row] = []
    unreadable: list[tuple[str, str]] = []
    for place, line in lines_of(file, lambda reason: unreadable.append((file.name, reason))):
        where = f"{file.name}:{place.rpartition(':')[2]}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            unreadable.append((where, f"not JSON: {error}"))
            continue
        if not isinstance(row, dict):
            unreadable.append((where, f"a row must be an object, got {type(row).__name__}"))
            continue
        fields = {name: value for name, value in row.items() if value is not None}
        row = {**_ABSENT, **without_surrogates(fields), "id": f"{where} {fields['id']}" if "id" in fields else where}
        for name, default in _ABSENT.items():
            expected = str if name == "model" else type(default)
            if (
                row[name] is not None
                and name not in ("request_json", "response")
                and not isinstance(row[name], expected)
            ):
                unreadable.append((where, f"{name!r} is of type {type(row[name]).__name__}"))
                break
        else:
            rows.append(row)
    return rows, unreadable


_ABSENT: Row = {
    "repo": "",
    "path": "",
    "index": 0,
    "url": "",
    "provider": "",
    "model": None,
    "request_json": None,
    "status": 200,
    "response": None,
    "response_kind": "json",
    "streaming": False,
}


def conversations(rows: list[Row]) -> list[list[Row]]:
    """Return the rows grouped by the file of the repository that they come from, in order."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[f"{row['repo']} {row['path']}"].append(row)
    return [sorted(group, key=lambda row: row["index"]) for group in groups.values()]


def check_safely(row: Row, conversation: list[Row], rules: set[str], failures: list[tuple[str, str]]) -> bool:
    try:
        return check_row(row, conversation, rules)
    except Difference as difference:
        failures.append((row["id"], str(difference)))
    except Exception as error:  # noqa: BLE001 - any error means that this row failed
        failures.append((row["id"], f"{type(error).__name__}: {error}"))
    return False


def check_row(row: Row, conversation: list[Row], rules: set[str]) -> bool:
    """Check one row. Return whether a later row has results for the calls of its response."""
    other = wire_of(row)
    if other is not None:
        return check_provider_row(row, other, conversation, rules)
    if not is_gemini(row):
        rules.add("another API")
        return False
    if "/interactions" in row["url"]:
        rules.add("another API")
        check_interaction(row, rules)
        return False
    check_request(row, rules)
    documents = recorded_documents(row)
    form = response_form(row)
    for document in documents:
        check_same(document, rewritten(form, document), "response", rules)
    if row["response_kind"] == "text":
        check_text(row, rules)
    if row["status"] >= 300 or form is not wire.GenerateContentResponse or not documents:
        return False
    answer = check_response(row, documents, rules)
    looped = answer is not None and check_loop(row, conversation, answer, rules)
    return looped or (len(conversation) == 1 and check_loop_in_request(row, rules))


_GEMINI = re.compile(
    r"/interactions\b|/cachedContents\b|/models(/[^/:]+)?(\?|$)|:(generateContent|streamGenerateContent|countTokens)\b"
)
"""The endpoints of Gemini that Midspan uses."""


def is_gemini(row: Row) -> bool:
    return not row["url"] or _GEMINI.search(row["url"]) is not None


# What was recorded


def recorded_documents(row: Row) -> Parsed:
    """Return the JSON documents of a response; a stream is split in the simplest way."""
    response = row["response"]
    if row["response_kind"] == "sse":
        events = re.sub(r"\r\n?", "\n", str(response or "").removeprefix("\ufeff")).split("\n\n")
        texts = ["\n".join(_data(line) for line in event.split("\n")) for event in events]
        return [without_surrogates(json.loads(text)) for text in texts if is_json(text)]
    if row["response_kind"] == "text" or not isinstance(response, dict | list):
        return []
    return response if isinstance(response, list) else [response]


def _data(line: str) -> str:
    return "" if line.startswith((":", "event:", "id:", "retry:")) else line.removeprefix("data:")


def is_json(text: str) -> bool:
    """Return whether a text is a JSON object. A stream may be cut in its last event, and has other lines."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def response_form(row: Row) -> type[proto.Proto]:
    url = row["url"]
    if "enerateContent" in url:
        return wire.GenerateContentResponse
    if ":countTokens" in url:
        return wire.CountTokensResponse
    if "/cachedContents" in url:
        return wire.CachedContent
    return wire.Page if "/models" in url else wire.GenerateContentResponse


def request_form(row: Row) -> type[proto.Proto]:
    if ":countTokens" in row["url"]:
        return wire.CountTokensRequest
    return wire.CachedContent if "/cachedContents" in row["url"] else wire.GenerateContentRequest


def capabilities_for(row: Row) -> Capabilities:
    """Return the capabilities of the model of this row; an unknown model counts as one of the newest."""
    vertex = row["provider"] == "vertex" or "aiplatform" in row["url"]
    version = "v1" if "/v1/" in row["url"] else "v1beta1" if vertex else "v1beta"
    return capabilities_of(row["model"] or "unknown", Api.VERTEX if vertex else Api.DEVELOPER, version)


# Documents


def check_request(row: Row, rules: set[str]) -> None:
    request = row["request_json"]
    if request is None:
        rules.add("no request recorded")
        return
    check_same(request, rewritten(request_form(row), request), "request", rules)
    for index, content in enumerate(contents_of(request)):
        message = decode.message(as_bytes(content))
        written = json.loads(bytes(encode.encode_message(message, LOSSLESS)) or b"null")
        if not content.get("parts"):
            rules.add("empty content")
        else:
            after_rules(
                Sides([written], [content]), ("casing", "null", "role", "lone part"), f"contents[{index}]", rules
            )


LOSSLESS = Capabilities(signatures=False)
"""An API that accepts everything as it sent it."""


def rewritten(form: type[proto.Proto], document: Any) -> Any:
    try:
        return json.loads(proto.dump(proto.load(form, as_bytes(document))))
    except ProviderError as error:
        raise Difference(f"not read: {error}") from error


def check_same(recorded: Any, ours: Any, what: str, rules: set[str]) -> None:
    if ours == recorded:
        return
    cased, ours = camel_cased(recorded), camel_cased(ours)
    if cased != recorded:
        rules.add("casing")
    if ours != cased:
        rules.add("null")
        if without_nulls(ours) != without_nulls(cased):
            raise Difference(f"{what} is written differently: {first_difference(ours, cased)}")


def contents_of(request: Any) -> list[Any]:
    contents = request.get("contents") if isinstance(request, dict) else None
    return [content for content in as_list(contents) if isinstance(content, dict)]


def as_bytes(value: Any) -> bytes:
    """Return JSON as a server writes it. An unpaired surrogate is escaped, because UTF-8 cannot encode it."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


# Responses


def check_response(row: Row, documents: Parsed, rules: set[str]) -> ModelResponse | None:
    """Decode the response in every framing. Return it, or None if it is an error."""
    if any(document.get("error") for document in documents if isinstance(document, dict)):
        check_error(row, documents)
        return None
    api = capabilities_for(row).api
    try:
        answers = [decode_stream(pieces, api) for frame in frames(row, documents) for pieces in cuts(frame, row["id"])]
        if not row["streaming"] and len(documents) == 1:
            answers.append((None, decode.response(as_bytes(documents[0]), api, make_id=ids())))
    except ProviderError as error:
        if isinstance(documents[0], dict) and "promptFeedback" in documents[0]:
            rules.add("blocked prompt")
            return None
        raise Difference(f"not decoded: {type(error).__name__}: {error}") from error
    first_parts, answer = answers[0]
    for parts, other in answers[1:]:
        if parts is not None and values(parts) != values(first_parts or []):
            raise Difference("the parts depend on how the stream is cut into pieces")
        if values(other.message.parts) != values(answer.message.parts) or plain(other.message) != plain(answer.message):
            raise Difference("the message depends on how the response is framed or cut")
    check_sent_back(documents, answer)
    return answer


def check_error(row: Row, documents: Parsed) -> None:
    """Check that the exception has the message of the server, for an error response and for an error in a stream."""
    document = next(document for document in documents if isinstance(document, dict) and document.get("error"))
    message = document["error"].get("message") or "" if isinstance(document["error"], dict) else str(document["error"])
    for body in (as_bytes(document), as_bytes([document])):
        error = parse_error(row["status"] if row["status"] >= 300 else 500, body)
        if type(error) is ProviderError or message not in str(error):
            raise Difference(f"the exception does not have the message of the server: {error!r}")
    stream = StreamDecoder()
    frame = b"".join(b"data: %b\r\n\r\n" % as_bytes(document) for document in documents)
    try:
        for _ in stream.feed(frame):
            pass
    except ProviderError as error:
        if message in str(error):
            return
    raise Difference("an error within a stream is not raised")


def check_text(row: Row, rules: set[str]) -> None:
    """Check that a page of a front end, or an empty body, becomes an exception of Midspan."""
    body = str(row["response"] or "").encode()
    rules.add("not JSON")
    if row["status"] >= 300:
        if type(parse_error(row["status"], body)) is ProviderError:
            raise Difference("the error response has no exception type of its own")
    elif body.strip() and not is_json(body.decode()):
        stream = StreamDecoder()
        try:
            list(stream.feed(body))
            stream.end()
            if not row["streaming"]:
                decode.response(body, Api.DEVELOPER, make_id=ids())
        except ProviderError:
            return
        if not (row["streaming"] and stream.is_empty):  # the client reports that a stream is empty
            raise Difference("a text that is not JSON is accepted as a response")


def check_sent_back(documents: Parsed, answer: ModelResponse) -> None:
    """Check that the parts are sent back as the server sent them."""
    back = as_list((plain(answer.message) or {}).get("parts"))
    expected = expected_parts(documents)
    if back != expected:
        raise Difference(f"the parts that are sent back differ: {first_difference(back, expected)}")


def plain(message: Message) -> Any:
    data = message.provider_data
    return json.loads(bytes(data.raw)) if data is not None and data.raw else None


def values(parts: Iterable[Part]) -> Any:
    """Return parts as plain values, without the white space of a frame."""
    return json.loads(msgspec.json.encode(list(parts)))


def frames(row: Row, documents: Parsed) -> Iterator[bytes]:
    """Yield the bytes of a stream: as recorded, or in both framings of the API."""
    if row["response_kind"] == "sse":
        yield row["response"].encode()
    elif row["streaming"] or len(documents) > 1:
        yield b"".join(b"data: %b\r\n\r\n" % as_bytes(document) for document in documents)
        yield json.dumps(documents, indent=2, ensure_ascii=False).replace("\n", "\r\n").encode()
    else:
        yield json.dumps(documents[0], indent=2).encode()


def cuts(frame: bytes, seed: str) -> Iterator[Iterator[bytes]]:
    """Yield the same bytes in one piece, byte by byte, and in pieces of random size."""
    yield iter((frame,))
    yield (frame[index : index + 1] for index in range(len(frame)))
    chance = random.Random(seed)  # noqa: S311 - repeatable; not for secrets
    marks = sorted(chance.randrange(len(frame) + 1) for _ in range(chance.randrange(1, 20)))
    yield (frame[start:end] for start, end in zip([0, *marks], [*marks, len(frame)], strict=True))


def decode_stream(pieces: Iterator[bytes], api: Api) -> tuple[list[Any] | None, ModelResponse]:
    stream = StreamDecoder(api, make_id=ids())
    parts = [part for piece in pieces for part in stream.feed(piece)]
    parts += stream.end()
    return parts, stream.response()


def ids() -> Any:
    numbers = iter(range(1_000_000))
    return lambda: f"midspan_{next(numbers)}"


# Tool loops


def check_loop(row: Row, conversation: list[Row], answer: ModelResponse, rules: set[str]) -> bool:
    """Build the next request of the conversation from this response and the recorded results, and compare it."""
    if not answer.message.calls or row["request_json"] is None:
        return False
    before = contents_of(row["request_json"])
    after = next_contents(row, conversation, before)
    if after is None:
        rules.add("calls not answered")
        return False
    model_turn, rest = turn_of(after[len(before) :], rules)
    results_turn = results_after(rest)
    if results_turn is None:
        rules.add("calls not answered")
        return False
    sent = expected_parts(recorded_documents(row))
    check_turns(row, Turns(before, answer.message, sent, model_turn, results_turn), rules)
    return True


def check_loop_in_request(row: Row, rules: set[str]) -> bool:
    """Do the same for a single recorded request with a call and its results, whose response was not recorded."""
    contents = contents_of(row["request_json"])
    for index, content in enumerate(camel_cased(contents)):
        parts = as_list(content.get("parts"))
        results_turn = results_after(contents[index + 1 :]) if open_calls(parts) else None
        if content.get("role") == "model" and results_turn is not None:
            message = decode.message(as_bytes(contents[index]))
            check_turns(row, Turns(contents[:index], message, parts, content, results_turn), rules)
            rules.add("from one request")
            return True
    return False


class Turns(NamedTuple):
    """A step of a tool loop."""

    before: list[Any]
    """The contents before it."""
    message: Message
    """The turn of the model, decoded."""
    sent: Parsed
    """The parts of that turn, as the server sent them."""
    model_turn: Any
    """The same as the client sent it back."""
    results_turn: Any


def check_turns(row: Row, turns: Turns, rules: set[str]) -> None:
    """Compare the two turns that Midspan builds with the expected ones, and these with what the client sent."""
    capabilities = capabilities_for(row)
    pairs = matched(open_calls(turns.sent), responses_in(turns.results_turn))
    history = History([*decode.conversation(as_bytes(content) for content in turns.before), turns.message])
    request = ModelRequest(RequestConfig("m"), history.append(Message("user", results_of(turns, pairs))))
    ours = json.loads(encode.request_body(request, capabilities))["contents"]
    expected = [expected_model_turn(turns.sent, capabilities), expected_results_turn(pairs, capabilities)]
    built = [{"role": content["role"], "parts": as_list(content["parts"])} for content in ours[-2:]]
    if built != expected:
        raise Difference(f"the next request is not as expected: {first_difference(built, expected)}")
    if len(ours) != 2 + sum(1 for content in turns.before if content.get("parts")):
        raise Difference(f"the next request has {len(ours)} contents after {len(turns.before)}")
    after_rules(Sides(expected, [turns.model_turn, turns.results_turn], turns.sent), RULES, "the next request", rules)


def responses_in(content: Any) -> list[Any]:
    return [part["functionResponse"] for part in content["parts"] if isinstance(part.get("functionResponse"), dict)]


def results_of(turns: Turns, pairs: list[tuple[Any, Any]]) -> tuple[ToolResult, ...]:
    """Return the recorded results under the ids of the decoded calls, matched by position."""
    places = {id(call): place for place, call in enumerate(open_calls(turns.sent))}
    calls = turns.message.calls
    return tuple(
        ToolResult(calls[places[id(call)]].id, calls[places[id(call)]].name, *result_fields(response))
        for call, response in pairs
    )


def result_fields(response: Any) -> tuple[Any, bool, tuple[Blob, ...]]:
    """Return the value of a result without the envelope that Midspan adds, whether it is an error, and its media."""
    value = response.get("response")
    value = value if isinstance(value, dict) else {}
    part = as_bytes({"role": "user", "parts": [{"functionResponse": {**response, "response": value}}]})
    media = decode.message(part).results[0].media
    if value.keys() == {"result"} and not isinstance(value["result"], dict):
        return value["result"], False, media
    return value, "error" in value, media


def expected_model_turn(sent: Parsed, capabilities: Capabilities) -> Any:
    parts = signed(sent) if capabilities.signatures else sent
    parts = parts if capabilities.call_ids else without_ids(parts)
    if not capabilities.server_side_parts:
        parts = [part for part in parts if not ({"toolCall", "toolResponse"} & part.keys())]
    return {"role": "model", "parts": parts}


def expected_results_turn(pairs: list[tuple[Any, Any]], capabilities: Capabilities) -> Any:
    """Return one part for each result, then the media that this model does not accept inside results."""
    answers = [
        expected_result(call, response, takes_ids=capabilities.call_ids, nests_media=capabilities.media_in_results)
        for call, response in pairs
    ]
    return {
        "role": "user",
        "parts": [answer[0] for answer in answers] + [part for answer in answers for part in answer[1:]],
    }


def next_contents(row: Row, conversation: list[Row], before: list[Any]) -> list[Any] | None:
    """Return the contents of the first later request that continues this one."""
    wanted = camel_cased(before)
    for later in conversation:
        contents = contents_of(later["request_json"])
        continues = later["index"] > row["index"] and len(contents) > len(before) + 1
        if (
            continues
            and camel_cased(contents[: len(before)]) == wanted
            and contents[len(before)].get("role") == "model"
        ):
            return contents
    return None


def turn_of(contents: list[Any], rules: set[str]) -> tuple[Any, list[Any]]:
    """Return the turn of the model as one content, and the contents after it."""
    turn = list(takewhile(lambda content: content.get("role") == "model", camel_cased(contents)))
    if len(turn) > 1:
        rules.add("split turn")
    return {**turn[0], "parts": [part for content in turn for part in as_list(content.get("parts"))]}, contents[
        len(turn) :
    ]


def results_after(contents: list[Any]) -> Any:
    """Return the results after a turn as one content; None if there are none."""
    results: list[Any] = []
    for content in camel_cased(contents):
        parts = as_list(content.get("parts"))
        if not any(isinstance(part, dict) and isinstance(part.get("functionResponse"), dict) for part in parts):
            break
        results += parts
    return {"role": "user", "parts": results} if results else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
