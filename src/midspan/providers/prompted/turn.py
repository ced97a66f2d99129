"""One question to a model that only writes text, and what is heard in answer."""

import logging
from collections.abc import Callable, Iterable, Sequence
from os import urandom
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import ConfigError, MidspanError
from midspan.providers.prompted.findings import Declared, Refused
from midspan.providers.prompted.history import ORIGIN, Renderer, kept_bytes, kept_in, next_number
from midspan.providers.prompted.prompt import choice_rule
from midspan.providers.prompted.quotations import Quotations
from midspan.providers.prompted.reader import Piece, Reader, numbered
from midspan.types.exchange import FinishReason, ModelRequest, ModelResponse, Setup
from midspan.types.messages import Message
from midspan.types.parts import Part, Text, ToolCall
from midspan.types.specs import BuiltinTool, ToolSpec

_log = logging.getLogger("midspan.providers.prompted")

Instructions = Callable[[Sequence[ToolSpec], str], str]
"""The prompt about these tools, for calls that begin with this marker."""

_MOST_PROBLEMS = 5
_MARKABLE = (FinishReason.END, FinishReason.LENGTH, FinishReason.OTHER)
_MOST_SETUPS = 64


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
        choice = request.setup.tool_choice
        allowed = choice.names if choice is not None and choice.mode == "any" else ()
        self._manner = manner
        self._forbidden = choice is not None and choice.mode == "none"
        self._tools = Declared(tool for tool in request.setup.tools if not allowed or tool.name in allowed)
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
        self._parts: list[Part] = []
        self._texts: list[Text] = []
        """The text after these parts, in the pieces in which it came."""
        self._calls: list[ToolCall] = []
        self._problems: list[str] = []
        setup = _setup(request.setup, manner, self._mark)
        history = renderer.history(request.history, Declared(request.setup.tools), self._mark)
        self.question = ModelRequest(setup, history, request.continuation, request.room)
        _log.debug("[Gemini] System Prompt: %s", setup.system)

    def heard(self, part: Part) -> Iterable[Part]:
        """What a part of the model's answer says."""
        self._listened = True
        if type(part) is not Text or not self._tools.names:
            return [self._kept(part)]
        return [self._kept(self._meant(piece)) for piece in self._reader.feed(part.text)]

    def ended(self, answer: ModelResponse) -> Iterable[Part]:
        """What was still held back; all of it, if the model was not listened to before."""
        made: list[Part] = []
        if not self._listened:
            for part in answer.message.parts:
                made += self.heard(part)
        return [*made, *(self._kept(self._meant(piece)) for piece in self._reader.end())]

    def response(self, answer: ModelResponse) -> ModelResponse:
        """The whole answer, with calls where the model wrote some."""
        _log.debug("[Gemini] Response: %s", answer.message.text)
        _log.debug("[Gemini] Tool Calls: %s", _Shown(self._calls))
        self._end_text()
        message = Message("model", tuple(self._parts), ORIGIN, kept_bytes(answer.message, self._mark))
        if not self._problems or self._calls or answer.finish not in _MARKABLE:
            return replace(answer, message=message)
        finish = FinishReason.MALFORMED_CALL
        if self._forbidden:
            finish = FinishReason.END if message.text.strip() else FinishReason.UNEXPECTED_CALL
        return replace(
            answer, message=message, finish=finish, finish_message="; ".join(self._problems[:_MOST_PROBLEMS])
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

    def _kept(self, part: Part) -> Part:
        if type(part) is Text:
            self._texts.append(part)
        else:
            self._end_text()
            self._parts.append(part)
        return part

    def _end_text(self) -> None:
        texts, self._texts = self._texts, []
        if texts:
            self._parts.append(texts[0] if len(texts) == 1 else Text("".join(text.text for text in texts)))


class _Shown:
    """Calls as the log shows them, made only if somebody looks."""

    def __init__(self, calls: list[ToolCall]) -> None:
        self._calls = calls

    def __str__(self) -> str:
        return str([{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self._calls])


def _setup(setup: Setup, manner: Manner, mark: str | None) -> Setup:
    """What stays the same, for a model without functions; made once, because encoders keep what they made of it."""
    made: dict[tuple[Manner, str | None], Setup] = setup.__dict__.setdefault("prompted", {})
    if (manner, mark) not in made:
        functions = [tool for tool in setup.tools if isinstance(tool, ToolSpec)]
        builtins = tuple(tool for tool in setup.tools if isinstance(tool, BuiltinTool))
        system = setup.system
        if functions:
            word = f"{manner.marker}[{mark}]" if mark else manner.marker
            prompt = _instructed(manner.instructions, functions, word) + choice_rule(setup.tool_choice)
            system = f"{system}\n\n{prompt}" if system else prompt
        if len(made) >= _MOST_SETUPS:  # each guarded conversation has its own
            made.pop(next(iter(made)), None)
        made[manner, mark] = replace(setup, system=system, tools=builtins, tool_choice=None)
    return made[manner, mark]


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
    from midspan.schema.arguments import Checker  # loads the validator, which few need here
    from midspan.schema.normal import normal

    schema = spec.parameters
    return not schema or Checker(normal(schema)).accepts({})
