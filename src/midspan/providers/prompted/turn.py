"""One question to a model that only writes text, and what is heard in answer."""

import logging
from collections.abc import Callable, Iterator, Sequence
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
from midspan._types.parts import Part, ProviderData, Text, Thought, ToolCall
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.errors import ConfigError, MidspanError
from midspan.providers.prompted.findings import Declared, Refused
from midspan.providers.prompted.history import ORIGIN, Renderer, kept_bytes, kept_in, next_number
from midspan.providers.prompted.prompt import choice_rule
from midspan.providers.prompted.quotations import Quotations
from midspan.providers.prompted.reader import Piece, Reader, numbered
from midspan.providers.stream import StreamAccumulator

_log = logging.getLogger("midspan.providers.prompted")

Instructions = Callable[[Sequence[ToolSpec], str], str]
"""The prompt about these tools, for calls that begin with this marker."""

_MOST_PROBLEMS = 5
_MARKABLE = (FinishReason.END, FinishReason.LENGTH, FinishReason.OTHER)


class Manner(Struct, frozen=True, eq=False):
    """How a model is told of its tools, and how it is heard."""

    instructions: Instructions
    marker: str
    dialects: bool
    guarded: bool
    on_bad_args: Literal["error", "empty"]


class Turn:
    """`question` goes to the model; what it says is given to `heard`, and at the end to `ended` and `response`."""

    def __init__(self, request: ModelRequest, manner: Manner, renderer: Renderer) -> None:
        choice = request.config.tool_choice
        allowed = choice.names if choice is not None and choice.mode == "any" else ()
        self._manner = manner
        self._forbidden = choice is not None and choice.mode == "none"
        self._tools = Declared(tool for tool in request.config.tools if not allowed or tool.name in allowed)
        self._mark = _mark(request) if manner.guarded else None
        self._make_id = numbered(next_number(request.history))
        self._reader = Reader(
            self._tools,
            marker=manner.marker,
            mark=self._mark,
            dialects=manner.dialects,
            make_id=self._make_id,
            is_quoted=Quotations(request.history, self._tools, manner.marker, self._mark).hold,
        )
        self._listened = False
        self._accumulator = StreamAccumulator()
        self._inner: dict[int, Part] = {}
        """The parts of the model's own stream that are not given as deltas, until they end."""
        self._calls: list[ToolCall] = []
        self._problems: list[str] = []
        config = _config(request.config, manner, self._mark)
        history = renderer.history(request.history, Declared(request.config.tools), self._mark)
        self.question = ModelRequest(config, history, request.budget)
        _log.debug("[Gemini] System Prompt: %s", config.system)

    def heard(self, event: PartEvent) -> Iterator[PartEvent]:
        """What an event of the model's own stream says."""
        self._listened = True
        match event:
            case PartStart(index, Text() | Thought() as part) if part.provider_data is None:
                yield from self._read(part)
            case PartStart(index, part):
                self._inner[index] = part
            case PartDelta(index, TextPartDelta(text)) if index not in self._inner:
                yield from self._read(Text(text))
            case PartDelta(index, ThoughtPartDelta(text)) if index not in self._inner:
                yield from self._read(Thought(text))
            case PartEnd(index, part) if index in self._inner:
                whole = part or self._inner[index]
                del self._inner[index]
                yield from self._read(whole)

    def ended(self, response: ModelResponse) -> list[PartEvent]:
        """What was still held back; all of it, if the model was not streamed."""
        events: list[PartEvent] = []
        if not self._listened:
            for part in response.message.parts:
                events += self._read(part)
        for piece in self._reader.end():
            events += self._accumulator.add_part(self._meant(piece))
        return events + self._accumulator.end_current()

    def _read(self, part: Part) -> list[PartEvent]:
        if type(part) is not Text or not self._tools.names:
            return self._accumulator.add_part(part)
        pieces = [self._meant(piece) for piece in self._reader.feed(part.text)]
        return [event for made in pieces for event in self._accumulator.add_part(made)]

    def response(self, answer: ModelResponse) -> ModelResponse:
        """The whole answer, with calls where the model wrote some."""
        _log.debug("[Gemini] Response: %s", answer.message.text)
        _log.debug("[Gemini] Tool Calls: %s", _Shown(self._calls))
        data = ProviderData(ORIGIN, kept_bytes(answer.message, self._mark))
        message = Message("model", self._accumulator.parts(), data)
        if not self._problems or self._calls or answer.finish_reason not in _MARKABLE:
            return replace(answer, message=message)
        finish = FinishReason.MALFORMED_CALL
        if self._forbidden:
            finish = FinishReason.END if message.text.strip() else FinishReason.UNEXPECTED_CALL
        return replace(
            answer, message=message, finish_reason=finish, finish_message="; ".join(self._problems[:_MOST_PROBLEMS])
        )

    def _meant(self, piece: Piece) -> Part:
        """What the reader found, as a part."""
        if isinstance(piece, Text):
            return piece
        if self._forbidden:
            piece = Refused(piece.name or "", "no tool may be called now; answer in words", piece.name)
        if isinstance(piece, Refused):
            piece = self._without_arguments(piece) or piece
        if isinstance(piece, ToolCall):
            self._calls.append(piece)
            return piece
        if piece.name is not None and piece.name not in self._tools.specs:
            _log.warning("Gemini called invalid tool: %s", piece.name)
        else:
            _log.debug("Failed to parse tool arguments: %s", piece.problem)
        self._problems.append(piece.problem)
        return piece.part()

    def _without_arguments(self, refused: Refused) -> ToolCall | None:
        spec = self._tools.specs.get(refused.name or "")
        if self._manner.on_bad_args != "empty" or self._forbidden or spec is None or not _accepts_nothing(spec):
            return None
        _log.debug("Failed to parse tool arguments: %s; %s is run without any", refused.problem, spec.name)
        return ToolCall(self._make_id(), spec.name, {})


class _Shown:
    """Calls as the log shows them, made only if somebody looks."""

    def __init__(self, calls: list[ToolCall]) -> None:
        self._calls = calls

    def __str__(self) -> str:
        return str([{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self._calls])


def _config(config: RequestConfig, manner: Manner, mark: str | None) -> RequestConfig:
    """The config for a model without functions; made once, because encoders keep what they derive from it."""
    return config.derived(("prompted", manner, mark), lambda: _prompted(config, manner, mark))


def _prompted(config: RequestConfig, manner: Manner, mark: str | None) -> RequestConfig:
    functions = [tool for tool in config.tools if isinstance(tool, ToolSpec)]
    builtins = tuple(tool for tool in config.tools if isinstance(tool, BuiltinTool))
    system = config.system
    if functions:
        word = f"{manner.marker}[{mark}]" if mark else manner.marker
        prompt = _instructed(manner.instructions, functions, word) + choice_rule(config.tool_choice)
        system = f"{system}\n\n{prompt}" if system else prompt
    return replace(config, system=system, tools=builtins, tool_choice=None)


def _instructed(instructions: Instructions, functions: Sequence[ToolSpec], word: str) -> str:
    """What the caller's function writes; what is wrong with it is told as the caller's, not as the model's."""
    try:
        prompt = instructions(functions, word)
    except MidspanError:
        raise
    except Exception as error:
        raise ConfigError(f"instructions raised {type(error).__name__}: {error}") from error
    if not isinstance(prompt, str):
        raise ConfigError(f"instructions returns the prompt as a text, not {prompt!r}")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"instructions wrote {prompt[error.start]!r}, which is no whole character") from error
    return prompt


def _mark(request: ModelRequest) -> str:
    """The mark of this conversation: what its earlier turns carry, else a new one, which the next turn will carry."""
    for message in request.history:
        kept = kept_in(message)
        if kept is not None and kept.mark is not None:
            return kept.mark
    return urandom(6).hex()


def _accepts_nothing(spec: ToolSpec) -> bool:
    """Whether a tool may be called without arguments."""
    from midspan._schema.arguments import SchemaValidator  # loads the validator, which few need here
    from midspan._schema.normalize import normalize

    schema = spec.parameters
    return not schema or SchemaValidator(normalize(schema)).accepts({})
