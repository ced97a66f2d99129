"""Replay recorded Gemini traffic through the wire layer: python scripts/replay_traffic.py FILE…

Each row of a file is one HTTP exchange (see shared/data/README.md for the form). For every row:

- each document of the response, read and written again, equals the recorded JSON, and so does the request;
- the response becomes a message, or the error that it is, and the message is sent back as the server sent it;
- a stream gives the same parts and the same message fed whole, byte by byte and in random pieces;
- where a later row of the same conversation answers the calls of this one, the contents that we build from this
  response and those results equal what that row sent.

A difference is allowed only by a rule of RULES. Prints how many rows each rule covered, each failing row with its
reason, and the counts last on one line. Exits 1 if a row fails.
"""

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
from traffic_rules import RULES, Difference, Sides, after_rules, camel_cased, without_nulls

from wasat.errors import ProviderError
from wasat.providers.gemini import decode, encode, proto, wire
from wasat.providers.gemini.capabilities import Api, Capabilities, capabilities_of
from wasat.providers.gemini.refusals import refusal
from wasat.types.exchange import ModelRequest, ModelResponse, Setup
from wasat.types.messages import History, Message
from wasat.types.parts import Part, ToolResult

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
        rows = [json.loads(line) for line in Path(file).read_text("utf-8").splitlines() if line.strip()]
        conversations: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row["index"] or 0):
            row |= {"url": row["url"] or "", "status": row["status"] or 200}
            conversations[row["repo"], row["path"]].append(row)
        for conversation in conversations.values():
            looped = False
            for row in conversation:
                total += 1
                rules: set[str] = set()
                try:
                    looped |= check_row(row, conversation, rules)
                except Difference as difference:
                    failures.append((row["id"], str(difference)))
                except Exception as error:  # noqa: BLE001 - whatever a row does to us, it is that row which failed
                    failures.append((row["id"], f"{type(error).__name__}: {error}"))
                covered.update(rules)
            loops += looped
    for name, count in sorted(covered.items()):
        print(f"{count:5} rows  {name}: {RULES[name]}")
    for id, reason in failures:
        print(f"FAILED {id}: {reason}")
    print(f"{total} rows, {loops} tool loops, {total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def check_row(row: Row, conversation: list[Row], rules: set[str]) -> bool:
    """Everything that is checked of one row; whether calls of its response were answered by a later one."""
    if "/interactions" in row["url"]:
        rules.add("another API")
        return False
    check_request(row, rules)
    documents = recorded_documents(row)
    form = response_form(row)
    for document in documents:
        check_same(document, rewritten(form, document), "response", rules)
    if row["response_kind"] == "text":
        check_text(row, rules)
    if form is not wire.GenerateContentResponse or not documents:
        return False
    answer = check_response(row, documents, rules)
    return answer is not None and check_loop(row, conversation, answer, rules)


# What was recorded


def recorded_documents(row: Row) -> Parsed:
    """The JSON documents of a response, cut out of a stream in the simplest way there is."""
    response = row["response"]
    if row["response_kind"] == "sse":
        events = response.replace("\r\n", "\n").split("\n\n")
        texts = ["\n".join(line.removeprefix("data:") for line in event.split("\n")) for event in events]
        return [json.loads(text) for text in texts if is_json(text)]
    if row["response_kind"] == "text" or response is None:
        return []
    return response if isinstance(response, list) else [response]


def is_json(text: str) -> bool:
    """A stream may be cut within its last event, and holds words that are no JSON between events."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def response_form(row: Row) -> type[proto.Proto]:
    url = row["url"]
    if row["status"] >= 400:
        return wire.ErrorResponse
    if "enerateContent" in url:
        return wire.GenerateContentResponse
    if ":countTokens" in url:
        return wire.CountTokensResponse
    if "/cachedContents" in url:
        return wire.CachedContent
    return wire.ListModelsResponse if "/models" in url else wire.GenerateContentResponse


def request_form(row: Row) -> type[proto.Proto]:
    if ":countTokens" in row["url"]:
        return wire.CountTokensRequest
    return wire.CachedContent if "/cachedContents" in row["url"] else wire.GenerateContentRequest


def capabilities_for(row: Row) -> Capabilities:
    """What the model of this row can do; what is not known of it, it is taken to do as the newest do."""
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
            after_rules(Sides([written], [content]), ("casing", "null", "role"), f"contents[{index}]", rules)


LOSSLESS = Capabilities(signatures=False)
"""An API that takes everything back as it gave it."""


def rewritten(form: type[proto.Proto], document: Any) -> Any:
    try:
        return json.loads(proto.dump(proto.load(form, as_bytes(document))))
    except ProviderError as error:
        raise Difference(f"not read: {error}") from error


def check_same(recorded: Any, ours: Any, what: str, rules: set[str]) -> None:
    if ours == recorded:
        return
    cased = camel_cased(recorded)
    if cased != recorded:
        rules.add("casing")
    if ours != cased and ours == without_nulls(cased):
        rules.add("null")
    elif ours != cased:
        raise Difference(f"{what} is written differently: {json.dumps(ours)[:200]} for {json.dumps(recorded)[:200]}")


def contents_of(request: Any) -> list[Any]:
    contents = request.get("contents") if isinstance(request, dict) else None
    return contents if isinstance(contents, list) else []


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


# Responses


def check_response(row: Row, documents: Parsed, rules: set[str]) -> ModelResponse | None:
    """The response through `decode`: as one answer, or as the error that it is."""
    if any("error" in document for document in documents if isinstance(document, dict)):
        check_error(row, documents)
        return None
    api = capabilities_for(row).api
    try:
        answers = [fed(pieces, api) for frame in frames(row, documents) for pieces in cuts(frame, row["id"])]
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
    check_sent_back(documents, answer, rules)
    return answer


def check_error(row: Row, documents: Parsed) -> None:
    """The error is told in the server's words, whether it is the body of a refusal or comes within a stream."""
    refused = next(document for document in documents if "error" in document)
    words = refused["error"]["message"] if isinstance(refused["error"], dict) else refused["error"]
    for body in (as_bytes(refused), as_bytes([refused])):
        error = refusal(row["status"] if row["status"] >= 400 else 500, body)
        if type(error) is ProviderError or words not in str(error):
            raise Difference(f"the error is not told: {error!r}")
    stream = decode.ResponseStream()
    frame = b"".join(b"data: %b\r\n\r\n" % as_bytes(document) for document in documents)
    try:
        for _ in stream.feed(frame):
            pass
    except ProviderError as error:
        if words in str(error):
            return
    raise Difference("an error within a stream is not raised")


def check_text(row: Row, rules: set[str]) -> None:
    """A page of a front-end, or nothing at all: the error is still one of ours."""
    body = (row["response"] or "").encode()
    rules.add("no JSON")
    if row["status"] >= 400:
        assert type(refusal(row["status"], body)) is not ProviderError
        return
    try:
        fed(iter((body,)), Api.DEVELOPER)
    except ProviderError:
        return
    if body.strip():
        raise Difference("a text that is no JSON passes for an answer")


def check_sent_back(documents: Parsed, answer: ModelResponse, rules: set[str]) -> None:
    """What goes back is what the server sent, part by part."""
    sent = [part for document in documents for part in parts_sent(document)]
    back = (plain(answer.message) or {}).get("parts") or []
    names = ("streamed arguments", "joined text") if len(documents) > 1 else ()
    after_rules(Sides([{"parts": back}], [{"parts": sent}]), names, "what goes back", rules)


def parts_sent(document: Any) -> list[Any]:
    candidates = document.get("candidates") or [] if isinstance(document, dict) else []
    ours = [candidate for candidate in candidates if not candidate.get("index")][:1]
    return [part for candidate in ours for part in (candidate.get("content") or {}).get("parts") or []]


def plain(message: Message) -> Any:
    return json.loads(bytes(message.raw)) if message.raw else None


def values(parts: Iterable[Part]) -> Any:
    """Parts as plain values, in which the white space of a frame does not show."""
    return json.loads(msgspec.json.encode(list(parts)))


def frames(row: Row, documents: Parsed) -> Iterator[bytes]:
    """The bytes of a stream: as recorded, else in both frames that the API has."""
    if row["response_kind"] == "sse":
        yield row["response"].encode()
    elif row["streaming"] or len(documents) > 1:
        yield b"".join(b"data: %b\r\n\r\n" % as_bytes(document) for document in documents)
        yield json.dumps(documents, indent=2, ensure_ascii=False).replace("\n", "\r\n").encode()
    else:
        yield json.dumps(documents[0], indent=2).encode()


def cuts(frame: bytes, seed: str) -> Iterator[Iterator[bytes]]:
    """The same bytes whole, byte by byte, and in pieces of random size."""
    yield iter((frame,))
    yield (frame[index : index + 1] for index in range(len(frame)))
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nobody's secret
    marks = sorted(chance.randrange(len(frame) + 1) for _ in range(chance.randrange(1, 20)))
    yield (frame[start:end] for start, end in zip([0, *marks], [*marks, len(frame)], strict=True))


def fed(pieces: Iterator[bytes], api: Api) -> tuple[list[Any] | None, ModelResponse]:
    stream = decode.ResponseStream(api, make_id=ids())
    parts = [part for piece in pieces for part in stream.feed(piece)]
    parts += stream.end()
    return parts, stream.response()


def ids() -> Any:
    numbers = iter(range(1_000_000))
    return lambda: f"wasat_{next(numbers)}"


# Tool loops


def check_loop(row: Row, conversation: list[Row], answer: ModelResponse, rules: set[str]) -> bool:
    """The next request of the conversation, built by us from what the server said and what the tools gave."""
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
    capabilities = capabilities_for(row)
    results = tool_results(answer, results_turn)
    history = History([*(decode.message(as_bytes(content)) for content in before), answer.message])
    body = encode.request_body(ModelRequest(Setup("m"), history.plus(Message("user", results))), capabilities)
    ours = json.loads(body)["contents"]
    after_rules(Sides(ours[-2:], [model_turn, results_turn], sent=answer_parts(row)), RULES, "the next request", rules)
    if len(ours) != 2 + sum(1 for content in before if content.get("parts")):
        raise Difference(f"the next request has {len(ours)} contents after {len(before)}")
    return True


def next_contents(row: Row, conversation: list[Row], before: list[Any]) -> list[Any] | None:
    """The contents of the first later request that goes on from this one."""
    wanted = camel_cased(before)
    for later in conversation:
        contents = contents_of(later["request_json"])
        goes_on = later["index"] > row["index"] and len(contents) > len(before) + 1
        if goes_on and camel_cased(contents[: len(before)]) == wanted and contents[len(before)].get("role") == "model":
            return contents
    return None


def turn_of(contents: list[Any], rules: set[str]) -> tuple[Any, list[Any]]:
    """The model's turn, however many contents the client made of it, and what follows."""
    turn = list(takewhile(lambda content: content.get("role") == "model", camel_cased(contents)))
    if len(turn) > 1:
        rules.add("split turn")
    return {**turn[0], "parts": [part for one in turn for part in one.get("parts") or []]}, contents[len(turn) :]


def results_after(contents: list[Any]) -> Any:
    """The results of the turn as one content, however many the client made of it."""
    results: list[Any] = []
    for content in camel_cased(contents):
        parts = content.get("parts") or []
        if not any("functionResponse" in part for part in parts):
            break
        results += parts
    return {"role": "user", "parts": results} if results else None


def tool_results(answer: ModelResponse, results_turn: Any) -> tuple[ToolResult, ...]:
    """The recorded results under the ids of the calls that they answer: by id, else by name and order."""
    waiting = list(answer.message.calls)
    results = []
    for part in results_turn["parts"]:
        response = part.get("functionResponse")
        if response is None:
            continue
        found = next((call for call in waiting if call.id == response.get("id")), None)
        found = found or next((call for call in waiting if call.name == response["name"]), None)
        if found is not None:
            waiting.remove(found)
            read = decode.message(as_bytes({"role": "user", "parts": [part]})).results[0]
            results.append(ToolResult(found.id, found.name, read_value(response), read.is_error, read.media))
    return tuple(results)


def read_value(response: Any) -> Any:
    """What the tool gave, out of the envelope that we would put it into ourselves; any other stays as it is."""
    value = response.get("response") or {}
    return value["result"] if value.keys() == {"result"} and not isinstance(value["result"], dict) else value


def answer_parts(row: Row) -> list[Any]:
    return [part for document in recorded_documents(row) for part in parts_sent(document)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
