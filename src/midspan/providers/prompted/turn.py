"""One request to a model that only writes text, and the reading of its response."""

import logging
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from os import urandom
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.exchange import (
    FinishReason,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartEvent,
    PartStart,
    RequestConfig,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, ToolCall
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.errors import ConfigError, MidspanError
from midspan.providers.prompted.echo_filter import EchoFilter
from midspan.providers.prompted.history import TextRenderer, TurnData, next_call_number, turn_data
from midspan.providers.prompted.prompt import choice_rule
from midspan.providers.prompted.reader import Piece, Reader, RejectedCall, RetractedCalls, numbered
from midspan.providers.prompted.scanner import ToolIndex, WrittenCall
from midspan.providers.stream import StreamAccumulator

_log = logging.getLogger("midspan.providers.prompted")

Instructions = Callable[[Sequence[ToolSpec], str], str]
"""Returns the prompt about these tools, for calls that begin with this marker."""

_MAX_ERRORS = 5
_CHANGEABLE = (FinishReason.END, FinishReason.LENGTH, FinishReason.OTHER)


class PromptStyle(Struct, frozen=True, eq=False):
    """How a model is told about its tools, and how its calls are read."""

    instructions: Instructions
    marker: str
    other_forms: bool
    guarded: bool
    on_bad_args: Literal["error", "empty"]


class Turn:
    """`request` goes to the model. Its events go to `add`, its response to `finish` and then to `response`."""

    def __init__(self, request: ModelRequest, style: PromptStyle, renderer: TextRenderer) -> None:
        choice = request.config.tool_choice
        allowed = choice.names if choice is not None and choice.mode == "any" else ()
        self._style = style
        self._is_forbidden = choice is not None and choice.mode == "none"
        self._tools = ToolIndex(tool for tool in request.config.tools if not allowed or tool.name in allowed)
        self._nonce = _nonce(request, style)
        self._make_id = numbered(next_call_number(request.history))
        self._echo_filter = EchoFilter(request.history)
        self._reader = Reader(
            self._tools,
            marker=style.marker,
            nonce=self._nonce,
            other_forms=style.other_forms,
            make_id=self._make_id,
            rejection=self._rejection,
        )
        self._is_streamed = False
        self._accumulator = StreamAccumulator()
        self._open_parts: dict[int, Part] = {}
        """Parts of the inner stream that are passed on when they end."""
        self._calls: list[ToolCall] = []
        self._retracted = 0
        """How many parts stand before the end of a thought whose beginning was in the prompt."""
        self._errors: list[str] = []
        config = request.config.derived(("prompted", style, self._nonce), lambda: self._config(request.config))
        names = ToolIndex(request.config.tools).names
        self.request = replace(request, config=config, history=renderer.render(request.history, names, self._marker))
        _log.debug("[Gemini] System Prompt: %s", config.system)

    @property
    def _marker(self) -> str:
        return f"{self._style.marker}[{self._nonce}]"

    def _config(self, config: RequestConfig) -> RequestConfig:
        """Return the config for a model without tools."""
        tools = [tool for tool in config.tools if isinstance(tool, ToolSpec)]
        builtins = tuple(tool for tool in config.tools if isinstance(tool, BuiltinTool))
        system = config.system
        if tools:
            prompt = _instruct(self._style.instructions, tools, self._marker) + choice_rule(config.tool_choice)
            system = f"{system}\n\n{prompt}" if system else prompt
        return replace(config, system=system, tools=builtins, tool_choice=None)

    def _rejection(self, call: WrittenCall, has_nonce: bool) -> str | None:
        """Return why a readable call is not made."""
        if self._style.guarded and not has_nonce:
            return f"the call of {call.name} is not made without its nonce; write it after {self._marker}:"
        if not self._echo_filter.is_echo(call, self._nonce if has_nonce else ""):
            return None
        error = f"the call of {call.name} also stands in a prompt, a file or a result, so it may be a quotation"
        return error if has_nonce else f"{error}; to make it, write it after {self._marker}:"

    def add(self, event: PartEvent) -> Iterator[PartEvent]:
        """Yield the events that an event of the inner stream gives."""
        self._is_streamed = True
        match event:
            case PartStart(index, Text() | Thought() as part) if part.provider_data is None:
                yield from self._read(part)
            case PartStart(index, part):
                self._open_parts[index] = part
            case PartDelta(index, TextPartDelta(text)) if index not in self._open_parts:
                yield from self._read(Text(text))
            case PartDelta(index, ThoughtPartDelta(text)) if index not in self._open_parts:
                yield from self._read(Thought(text))
            case PartEnd(index, part) if index in self._open_parts:
                yield from self._read(part or self._open_parts[index])
                del self._open_parts[index]

    def finish(self, response: ModelResponse) -> list[PartEvent]:
        """Return the events for what was held back, or for everything if the response was not streamed."""
        events: list[PartEvent] = []
        if not self._is_streamed:
            for part in response.message.parts:
                events += self._read(part)
        for piece in self._reader.end():
            events += self._add_piece(piece)
        return events + self._accumulator.end_current()

    def _read(self, part: Part) -> list[PartEvent]:
        if type(part) is not Text or not self._tools.names:
            return self._accumulator.add_part(part)
        return [event for piece in self._reader.feed(part.text) for event in self._add_piece(piece)]

    def _add_piece(self, piece: Piece) -> list[PartEvent]:
        if isinstance(piece, RetractedCalls):
            self._retracted = self._accumulator.next_index
            self._calls, self._errors = [], []
            return []
        if self._is_forbidden and not isinstance(piece, Text):
            piece = RejectedCall("", "no tool is available now; answer in words", piece.name)
        if isinstance(piece, RejectedCall):
            piece = self._call_without_arguments(piece) or piece
        if isinstance(piece, ToolCall):
            self._calls.append(piece)
        if not isinstance(piece, RejectedCall):
            return self._accumulator.add_part(piece)
        if piece.name is not None and piece.name not in self._tools.specs:
            _log.warning("Gemini called invalid tool: %s", piece.name)
        else:
            _log.debug("Failed to parse tool arguments: %s", piece.error)
        self._errors.append(piece.error)
        return self._accumulator.add_part(piece.part())

    def _call_without_arguments(self, rejected: RejectedCall) -> ToolCall | None:
        """Return a call with empty arguments in place of an unreadable one, if caller and schema allow it."""
        spec = self._tools.specs.get(rejected.name or "")
        if self._style.on_bad_args != "empty" or self._is_forbidden or spec is None or not _accepts_nothing(spec):
            return None
        _log.debug("Failed to parse tool arguments: %s; %s is called without any", rejected.error, spec.name)
        return ToolCall(self._make_id(), spec.name, {})

    def response(self, response: ModelResponse) -> ModelResponse:
        """Return the response with the calls that the model wrote."""
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self._calls]
        _log.debug("[Gemini] Response: %s", response.message.text)
        _log.debug("[Gemini] Tool Calls: %s", calls)
        parts = self._accumulator.parts()
        thought = [part for part in parts[: self._retracted] if isinstance(part, Text | Thought)]
        message = Message(
            "model", (*thought, *parts[self._retracted :]), TurnData(response.message, self._nonce).provider_data()
        )
        if not self._errors or self._calls or response.finish_reason not in _CHANGEABLE:
            return replace(response, message=message)
        reason = FinishReason.MALFORMED_CALL
        if self._is_forbidden:
            reason = FinishReason.END if message.text.strip() else FinishReason.UNEXPECTED_CALL
        errors = "; ".join(self._errors[:_MAX_ERRORS])
        return replace(response, message=message, finish_reason=reason, finish_message=errors)


def _nonce(request: ModelRequest, style: PromptStyle) -> str:
    """Return the nonce of the conversation: the one of its earlier turns, or a new one.

    A guarded conversation has a random nonce. Any other has one that depends only on its tools and its system prompt,
    so that the same request gives the same prompt; a nonce that stands in a prompt or a result proves nothing anyway.
    """
    for message in request.history:
        data = turn_data(message)
        if data is not None:
            return data.nonce
    if style.guarded:
        return urandom(6).hex()
    names = [tool.name for tool in request.config.tools]
    return sha256(repr((request.config.system, names)).encode("utf-8", "replace")).hexdigest()[:6]


def _instruct(instructions: Instructions, tools: Sequence[ToolSpec], marker: str) -> str:
    """Return the prompt that the caller's function writes."""
    try:
        prompt = instructions(tools, marker)
    except MidspanError:
        raise
    except Exception as error:  # the caller's code
        raise ConfigError(f"instructions raised {type(error).__name__}: {error}") from error
    if not isinstance(prompt, str):
        raise ConfigError(f"instructions must return a string, got {prompt!r}")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"instructions returned an unpaired surrogate: {prompt[error.start]!r}") from error
    return prompt


def _accepts_nothing(spec: ToolSpec) -> bool:
    """Whether a tool may be called without arguments."""
    from midspan._schema.arguments import SchemaValidator  # loads the validator, which few need here
    from midspan._schema.normalize import normalize

    schema = spec.parameters
    return not schema or SchemaValidator(normalize(schema)).accepts({})
