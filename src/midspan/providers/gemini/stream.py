"""A streamed response of Gemini: bytes in, model events out, and one response at the end."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._http.body import ServerSentEvent, ServerSentEventParser
from midspan._types.exchange import FinishReason, ModelResponse, PartEnd, PartEvent, PartStart
from midspan._types.messages import Message
from midspan._types.parts import Opaque, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.errors import MalformedResponseError
from midspan.providers.encoding import encode_json
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import Api
from midspan.providers.stream import StreamAccumulator

if TYPE_CHECKING:
    from midspan.providers.gemini import wire


_Entry = tuple[Part, Raw]


class StreamDecoder:
    """Turns bytes into events (`StreamAccumulator`), and at the end into a response that keeps the server's bytes."""

    def __init__(self, api: Api = Api.DEVELOPER, *, make_id: decode.MakeId = local_id, first_index: int = 0) -> None:
        self._framing = Framing()
        self._api = api
        self._make_id = make_id
        self.accumulator = StreamAccumulator(first_index)
        self._documents: list[Raw] = []
        self._contents: list[Raw] = []
        """The contents that have parts."""
        self._parts: list[_Entry | None] = []
        """All parts with the bytes that go back to the server, in order. None is a call that is still open."""
        self._calls: dict[tuple[str, str, bytes], int] = {}
        """The positions of the calls among the parts, by id, name and arguments."""
        self._open: _OpenCall | None = None
        self._chunk = decode.Chunk()
        self.candidate = decode.CandidateFields()
        """The latest value of each field except the content."""

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the events that a piece completes."""
        for document in self._framing.feed(piece):
            yield from self.add(document)

    def end(self) -> Iterator[Any]:
        """Yield the last events. A call that is still open is complete only if the model finished with `STOP`."""
        for document in self._framing.end():
            yield from self.add(document)
        yield from self.accumulator.end_current()
        if self.finish_reason[0] is FinishReason.END:
            yield from self._close_call()

    @property
    def is_empty(self) -> bool:
        """Whether no document has arrived yet."""
        return not self._documents

    @property
    def is_complete(self) -> bool:
        """Whether the server has sent a finish reason."""
        return self.candidate.finish_reason is not None

    @property
    def finish_reason(self) -> tuple[FinishReason, str | None]:
        """What the server's finish reason means, and its name; CUT and None until the server sends one."""
        return decode.finish_reason_of(self.candidate.finish_reason, self._api)

    def add(self, document: bytes) -> list[Any]:
        """Return what `feed` yields for one document: its events."""
        raw, chunk, candidate = decode.read(document)
        self._documents.append(raw)
        latest = self._chunk
        latest.usage_metadata = chunk.usage_metadata or latest.usage_metadata
        latest.model_version = chunk.model_version or latest.model_version
        latest.response_id = chunk.response_id or latest.response_id
        latest.prompt_feedback = chunk.prompt_feedback or latest.prompt_feedback
        if candidate is None:
            return []
        fields = self.candidate
        fields.finish_reason = candidate.finish_reason or fields.finish_reason
        fields.finish_message = candidate.finish_message or fields.finish_message
        fields.continuation_token = candidate.continuation_token or fields.continuation_token
        content, _, parts = decode.read_content(candidate.content, self._make_id)
        if parts:
            self._contents.append(content)
        return [event for part, raw in parts for event in self._add_part(part, raw)]

    def _add_part(self, part: Part, raw: Raw) -> list[PartEvent]:
        if isinstance(part, Opaque) and part.name == "functionCall":
            call = decode.read_any_part(raw).function_call
            if call is not None:
                if call.partial_args is not None or call.will_continue or (self._open is not None and not call.name):
                    return self._add_partial(call, raw)
                if call.name is None and decode.fields_of(raw).keys() == {"functionCall"}:
                    return []  # the end of a call that had ended already
        if not isinstance(part, ToolCall):
            self._parts.append((part, raw))
            return self.accumulator.add_part(part)
        events = self._close_call()
        position = self._register(part, len(self._parts))
        if position < len(self._parts):
            # A chunk came twice. The server rejects two calls with one id, and wants the signed one back.
            if part.provider_data is not None:
                self._parts[position] = (part, raw)
            return events
        self._parts.append((part, raw))
        return events + self.accumulator.add_part(part)

    def _register(self, call: ToolCall, position: int) -> int:
        """Return the position of an equal earlier call; if there is none, store and return `position`."""
        # The arguments are compared as JSON, because 1 == 1.0 == True in Python.
        return self._calls.setdefault((call.id, call.name, encode_json(call.arguments)), position)

    def _add_partial(self, call: "wire.FunctionCall", raw: Raw) -> list[PartEvent]:
        events: list[PartEvent] = []
        if call.name or self._open is None:
            events += self._close_call()
            events += self.accumulator.end_current()
            self._open = _OpenCall(len(self._parts), self.accumulator.reserve())
            self._parts.append(None)
        self._open.add(call, raw)
        # More of the call follows if it says so itself, or if the last piece of its arguments does.
        is_open = call.will_continue or (call.partial_args and call.partial_args[-1].get("willContinue"))
        return events if is_open else events + self._close_call()

    def _close_call(self) -> list[PartEvent]:
        if self._open is None:
            return []
        call, self._open = self._open, None
        raw, position, index = call.complete(), call.position, call.index
        part, _ = decode.read_part(raw, self._make_id)
        if isinstance(part, ToolCall):
            part = replace(part, arguments_error=call.error) if call.error else part
            self._register(part, position)
        self._parts[position] = (part, raw)
        return [self.accumulator.add(PartStart(index, part)), self.accumulator.add(PartEnd(index, part))]

    def response(self) -> ModelResponse:
        """Return the whole response; without a finish reason it has `FinishReason.CUT`."""
        if self.candidate.finish_reason is None and self.accumulator.is_empty:
            decode.no_candidate(self._chunk.prompt_feedback)
        return decode.response_of(self._message(), self._chunk, self.candidate, tuple(self._documents), self._api)

    def _message(self) -> Message:
        entries = [entry for entry in self._parts if entry is not None]
        if len(self._contents) > 1:  # the parts of a single content go back as they came
            entries = list(_joined(entries))
        if not entries:
            return Message("model", (), ProviderData(decode.ORIGIN))
        raws = [raw for _, raw in entries]
        content = self._contents[0]
        if len(self._contents) > 1 or raws != decode.raw_parts(content):
            content = decode.join_contents(self._contents, raws)
        return Message("model", decode.linked([part for part, _ in entries]), ProviderData(decode.ORIGIN, content))


class _OpenCall:
    """A call whose arguments Vertex streams in pieces, its position among the parts, and the index of its events.

    The first part of a call has its name. Each further part has paths into the arguments, with a value each; a repeated
    path appends to its string. A part without `willContinue` ends the call; it may be missing.
    """

    def __init__(self, position: int, index: int) -> None:
        self.position = position
        self.index = index
        self._part: dict[str, Any] = {}
        self._call: dict[str, Any] = {}
        self._arguments: dict[str, Any] = {}
        self._pieces: dict[_Path | str, tuple[_Path, str, list[Any]]] = {}
        """Paths as steps, none if they cannot be read, and as text, with their values."""
        self.error: str | None = None
        """Why the arguments cannot be used."""

    def add(self, call: "wire.FunctionCall", raw: Raw) -> None:
        """Add a part of the call. Its other fields, such as the signature, are kept."""
        fields = msgspec.json.decode(raw)
        self._call |= fields.pop("functionCall", None) or {}
        self._part |= fields
        self._arguments |= call.args or {}
        for piece in call.partial_args or ():
            values = [piece.get(name) for name in ("stringValue", "numberValue", "boolValue")]
            path = str(piece.get("jsonPath", ""))
            steps = _parse_path(path)
            _, _, earlier = self._pieces.setdefault(steps or path, (steps, path[:_MAX_NAME_CHARS], []))
            earlier.extend([value for value in values if value is not None])

    def complete(self) -> Raw:
        """Return the part as the server sends it without streaming.

        A value whose path cannot be followed is an argument with the path as its name. Such a call is not run.
        """
        for steps, path, values in self._pieces.values():
            is_text = bool(values) and all(isinstance(value, str) for value in values)
            value = "".join(values) if is_text else next(reversed(values), None)
            if not _assign(self._arguments, steps, value):
                self._arguments[path], self.error = value, f"a value has the path {path!r}, which cannot be followed"
        call = {name: value for name, value in self._call.items() if name not in ("partialArgs", "willContinue")}
        return Raw(encode_json({**self._part, "functionCall": {**call, "args": self._arguments}}))


_Path = tuple[str | int, ...]
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)")
_MAX_DEPTH = 64
_MAX_NAME_CHARS = 60
_MAX_GAP = 100
"""Arrays are streamed in order. A path that skips more items than this would only use up memory."""


def _parse_path(path: str) -> _Path:
    """Return the steps of a path such as `$.ops[0].name`; none if it cannot be read."""
    steps: list[str | int] = []
    position = 1
    while step := _STEP.match(path, position):
        name, index, single, double = step.groups()
        steps.append(int(index) if index else name or _ESCAPE.sub(_unescape, single or double or ""))
        position = step.end()
    is_complete = path[:1] == "$" and position == len(path) and len(steps) <= _MAX_DEPTH
    return tuple(steps) if is_complete else ()


def _unescape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else escape[2]


def _assign(tree: Any, path: _Path, value: Any) -> bool:
    """Set the value at a path, and return whether it could be set. Lists and objects on the way are created."""
    for step, next_step in zip_longest(path, path[1:]):
        if isinstance(tree, dict):
            key: Any = str(step)
            tree.setdefault(key, None)
        elif isinstance(step, int) and step <= len(tree) + _MAX_GAP:
            key = step
            tree.extend([None] * (step + 1 - len(tree)))
        else:
            return False
        if next_step is None:
            tree[key] = value
        elif not isinstance(tree[key], dict | list):
            tree[key] = [] if isinstance(next_step, int) else {}
        tree = tree[key]
    return bool(path)


def _joined(entries: list[_Entry]) -> Iterator[_Entry]:
    """Yield the parts, with adjacent deltas of the same text joined to one part."""
    for part_type, group in groupby(entries, key=lambda entry: _delta_type(entry[0])):
        if part_type is None:
            yield from group
            continue
        deltas = [entry for entry in group if entry[0].text]  # type: ignore[union-attr]  # of a delta
        if len(deltas) == 1:
            yield deltas[0]
        elif deltas:
            text = "".join([part.text for part, _ in deltas])  # type: ignore[union-attr]
            fields = {"text": text, "thought": True} if part_type is Thought else {"text": text}
            yield part_type(text), Raw(encode_json(fields))


def _delta_type(part: Part) -> type[Text] | type[Thought] | None:
    """Return the type of a text that can be joined with its neighbours; None for all other parts."""
    return type(part) if isinstance(part, Text | Thought) and part.provider_data is None else None


_BLANK = b" \t\r\n\xef\xbb\xbf"
"""White space and the bytes of a byte order mark."""


class Framing:
    """Splits the bytes of a response into its JSON documents.

    A stream is server-sent events; a plain response is one document, or one JSON array of documents. The first byte
    decides which, not the request, because some gateways ignore the requested format.
    """

    def __init__(self) -> None:
        self._events: ServerSentEventParser | None = None
        self._document: list[bytes] = []
        """The pieces of a plain response."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the documents that a piece completes."""
        if self._events is None and not self._document:
            piece = piece.lstrip(_BLANK)
            if not piece:
                return []
            if not piece.startswith((b"{", b"[")):
                self._events = ServerSentEventParser()
        if self._events is not None:
            return _documents(self._events.feed(piece))
        self._document.append(piece)
        return []

    def end(self) -> list[bytes]:
        """Return the document that was not closed.

        The last event of a stream may be cut. It is dropped: without a finish reason the response counts as cut.
        """
        if self._events is None:
            document = b"".join(self._document)
            if document.startswith(b"["):
                with suppress(msgspec.DecodeError):  # it is cut
                    return [bytes(element) for element in msgspec.json.decode(document, type=list[Raw])]
            return [document] if document else []
        complete: list[bytes] = []
        for event in _documents(self._events.end()):
            with suppress(MalformedResponseError):
                decode.read(event)
                complete.append(event)
        return complete


def _documents(events: list[ServerSentEvent]) -> list[bytes]:
    # Gateways end a stream with [DONE]; of stray lines only JSON is meant for us: an error between two events.
    return [
        event.data
        for event in events
        if event.data.strip() != b"[DONE]" and (not event.stray or event.data.lstrip()[:1] == b"{")
    ]
