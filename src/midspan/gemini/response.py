"""What the Gemini API answered, for callers who want to see it as it is."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar, overload

from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import FinishReason, ModelResponse, PartDelta, PartEnd, PartStart, TextPartDelta
from midspan._types.messages import Message
from midspan._types.parts import Text, ToolCall, is_local_id
from midspan.errors import MalformedResponse, PromptBlocked
from midspan.gemini.output import answer_of
from midspan.gemini.types import FunctionCall
from midspan.providers.gemini import decode, responses, wire
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import load
from midspan.providers.gemini.stream import Framing, StreamDecoder

T = TypeVar("T")


class GenerateContentResponse:
    """An answer, or a chunk of one. Everything that the server sent is typed here, when it is asked for."""

    def __init__(
        self,
        answer: ModelResponse | Callable[[], ModelResponse],
        text: str | None = None,
        calls: tuple[ToolCall, ...] | None = None,
        *,
        form: Any = Any,
    ) -> None:
        self._made = answer
        self._text = text
        self._calls = calls
        """The calls that a chunk completed, which may have begun in chunks before it."""
        self._form = form
        """The type that the answer was asked to be of."""

    @property
    def answer(self) -> ModelResponse:
        """The answer as every provider gives it; that of a chunk is read when somebody asks."""
        if not isinstance(self._made, ModelResponse):
            self._made = self._made()
        return self._made

    @property
    def message(self) -> Message:
        """The answer as a turn of a History, which sends it back byte for byte."""
        return self.answer.message

    @cached_property
    def chunks(self) -> tuple[responses.GenerateContentResponse, ...]:
        """What the server sent, one for each chunk of a stream."""
        return tuple(_with_args(load(responses.GenerateContentResponse, raw)) for raw in self.answer.raw)

    @cached_property
    def content(self) -> wire.Content:
        """The model's turn, to be put into the contents of the next request."""
        data = self.answer.message.provider_data
        if data is None or not data.raw:
            return wire.Content(role="model", parts=[])
        return _content_with_args(load(wire.Content, data.raw))

    @property
    def candidates(self) -> list[responses.Candidate]:
        """Those of the last chunk that has any."""
        return next((chunk.candidates for chunk in reversed(self.chunks) if chunk.candidates), [])

    @property
    def parts(self) -> list[wire.Part]:
        return self.content.parts or []

    @property
    def text(self) -> str:
        """The words of the answer, without thoughts; empty if there are none."""
        return self.answer.message.text if self._text is None else self._text

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The calls that want an answer."""
        calls = self.answer.message.calls if self._calls is None else self._calls
        return [
            FunctionCall(name=call.name, args=call.arguments, id=None if is_local_id(call.id) else call.id)
            for call in calls
        ]

    @property
    def finish_reason(self) -> str | None:
        return self.answer.raw_finish_reason

    @property
    def usage_metadata(self) -> Any:
        return next((chunk.usage_metadata for chunk in reversed(self.chunks) if chunk.usage_metadata), None)

    @property
    def grounding_metadata(self) -> Any:
        """The sources of the answer, where Google searched for it."""
        found = (one.grounding_metadata for chunk in reversed(self.chunks) for one in chunk.candidates or [])
        return next((one for one in found if one is not None), None)

    @overload
    def parsed(self, form: type[T]) -> T: ...

    @overload
    def parsed(self, form: Any = None) -> Any: ...

    def parsed(self, form: Any = None) -> Any:
        """The answer read as JSON, into a value of this type: a class, a dataclass, a model, `list[int]`, an Enum.

        Without one it is a value of the type that was given as `response_schema`; if that was none, plain JSON.
        """
        return answer_of(self.text, self._form if form is None else form)

    def __repr__(self) -> str:
        return f"<response {self.finish_reason}: {self.text[:60]!r}, {len(self.function_calls)} calls>"


def _with_args(chunk: responses.GenerateContentResponse) -> responses.GenerateContentResponse:
    candidates = [
        one if one.content is None else replace(one, content=_content_with_args(one.content))
        for one in chunk.candidates or ()
    ]
    return replace(chunk, candidates=candidates) if candidates else chunk


def _content_with_args(content: wire.Content) -> wire.Content:
    return replace(content, parts=[_part_with_args(part) for part in content.parts]) if content.parts else content


def _part_with_args(part: wire.Part) -> wire.Part:
    """Return a part whose call, if it is complete, has arguments; a server leaves out empty ones."""
    call = part.function_call
    if call is None or call.args is not None or call.partial_args is not None or call.will_continue:
        return part
    return replace(part, function_call=replace(call, args={}))


class ChunkReader:
    """Bytes of a stream in, chunks out, and in the end the whole answer."""

    def __init__(self, api: Api, form: Any = Any) -> None:
        self._api = api
        self._form = form
        self._framing = Framing()
        self._decoder = StreamDecoder(api)

    def feed(self, piece: bytes) -> Iterator[GenerateContentResponse]:
        return map(self._chunk, self._framing.feed(piece))

    def end(self) -> Iterator[GenerateContentResponse]:
        for document in self._framing.end():
            try:
                yield self._chunk(document)
            except MalformedResponse:
                if not self._framing.is_stream:
                    raise
        self._decoder.end()

    def _chunk(self, document: bytes) -> GenerateContentResponse:
        text: list[str] = []
        calls: list[ToolCall] = []
        for event in self._decoder.add(document):
            match event:
                case PartStart(part=Text(words)) | PartDelta(delta=TextPartDelta(words)):
                    text.append(words)
                case PartEnd(part=ToolCall() as call):
                    calls.append(call)
        return GenerateContentResponse(lambda: self._alone(document), "".join(text), tuple(calls))

    def _alone(self, document: bytes) -> ModelResponse:
        try:
            return decode.response(document, self._api)
        except PromptBlocked:  # told once, by the whole answer
            return ModelResponse(Message("model", ()), finish_reason=FinishReason.CUT, raw=(Raw(document),))

    @property
    def is_empty(self) -> bool:
        return self._decoder.is_empty

    def whole(self) -> GenerateContentResponse:
        return GenerateContentResponse(self._decoder.response(), form=self._form)
