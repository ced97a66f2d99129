"""`PromptedTools(provider)`: a wrapper for models that only write text.

A call that cannot be read, or that calls an unknown tool, never becomes a `ToolCall`, so nothing can run it. It is an
`Opaque` part of the response, and the next request reports its error with the results of the other calls. If there are
no other calls, the response ends with `MALFORMED_CALL` and the errors in `finish_message`.
"""

import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import cached_property
from hashlib import sha256
from os import urandom
from typing import Any, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import (
    FinishReason,
    ModelEvent,
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
from midspan._types.parts import Blob, Part, ProviderData, Text, Thought, ToolCall
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.encoding import json_text, result_text
from midspan.providers.prompted.calls import NAME_KEYS
from midspan.providers.prompted.forms import PROMPT_MARKER
from midspan.providers.prompted.prompt import (
    ORIGIN,
    TurnData,
    choice_rule,
    next_call_number,
    render,
    system_prompt,
    turn_data,
)
from midspan.providers.prompted.reader import CallReader, Piece, RejectedCall, rejected_call
from midspan.providers.prompted.scanner import NAMESPACE, parameters_of
from midspan.providers.provider import ModelProfile, Provider, WrapperProvider, ensure_aclose
from midspan.providers.stream import StreamAccumulator

_log = logging.getLogger("midspan.providers.prompted")
_MAX_ERRORS = 5
"""In the `finish_message` of a response."""


class PromptedTools(WrapperProvider):
    """A model that gets its tools through the prompt."""

    def __init__(
        self,
        provider: Provider,
        *,
        instructions: Callable[[Sequence[ToolSpec], str], str] = system_prompt,
        guarded: bool = False,
        on_bad_args: Literal["error", "empty"] = "error",
    ) -> None:
        """`instructions` writes the prompt from the tools and the marker of calls. `guarded` demands in every call a
        nonce that only the prompt contains. `on_bad_args="empty"` calls a tool without arguments if its arguments
        cannot be read and its schema allows that.
        """
        if not isinstance(provider, Provider):
            raise ConfigError(f"PromptedTools needs a provider, got {provider!r}")
        super().__init__(provider)
        self.instructions = instructions
        self.guarded = guarded
        self.on_bad_args = on_bad_args
        # Calls are text, so the response cannot be JSON. They run in order: a later one may need an earlier one.
        self._profile = ModelProfile(provider.profile.service, supports_json_with_tools=False, calls_in_order=True)

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, with calls where the model writes some, then the response."""
        turn = _PromptedRequest(request, self)
        async with aclosing(ensure_aclose(self.wrapped.stream(turn.request))) as events:
            async for inner_event in events:
                for event in turn.add(inner_event):
                    yield event

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response, with calls where the model writes some."""
        turn = _PromptedRequest(request, self)
        response = await self.wrapped.generate(turn.request)
        for part in response.message.parts:
            turn.read(part)
        turn.end()
        return turn.response(response)


def calls_as_dicts(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    return [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]


class _PromptedRequest:
    """One request to a model that only writes text.

    `request` goes to the model. The events of its stream go to `add`, or the parts of its response to `read`.
    """

    def __init__(self, request: ModelRequest, provider: PromptedTools) -> None:
        choice = request.config.tool_choice
        allowed = choice.names if choice is not None and choice.mode == "required" else ()
        self._provider = provider
        self._service = provider.profile.service
        self._is_forbidden = choice is not None and choice.mode == "none"
        tools = [tool for tool in request.config.tools if not allowed or tool.name in allowed]
        self._nonce = _nonce(request, guarded=provider.guarded)
        self._marker = f"{PROMPT_MARKER}[{self._nonce}]"
        self._echo_filter = EchoFilter(request.history)
        self._reader = CallReader(tools, first_number=next_call_number(request.history), rejection=self._rejection)
        self._specs = self._reader.tools.specs
        self._accumulator = StreamAccumulator()
        self._open_parts: dict[int, Part] = {}
        """Parts of the inner stream that are neither text nor thoughts. They are passed on when they end."""
        config = request.config.derived(("prompted", provider, self._nonce), lambda: self._config(request.config))
        self.request = replace(request, config=config, history=render(request.history, self._marker))
        _log.debug("[%s] System Prompt: %s", self._service, config.system)

    def _config(self, config: RequestConfig) -> RequestConfig:
        """Return the config for a model without tools."""
        tools = [tool for tool in config.tools if isinstance(tool, ToolSpec)]
        builtins = tuple(tool for tool in config.tools if isinstance(tool, BuiltinTool))
        system = config.system
        if tools:
            prompt = self._provider.instructions(tools, self._marker) + choice_rule(config.tool_choice)
            system = f"{system}\n\n{prompt}" if system else prompt
        return replace(config, system=system, tools=builtins, tool_choice=None)

    def _rejection(self, call: ToolCall, mark: str) -> str | None:
        """Return why a readable call, which began with this mark, is not made."""
        has_nonce = f"[{self._nonce}]" in mark
        if self._is_forbidden:
            return "no tool is available now; answer in words"
        if self._provider.guarded and not has_nonce:
            return f"the call of {call.name} is not made without its nonce; write it after {self._marker}:"
        if mark.upper().startswith(f"{PROMPT_MARKER}[") and not has_nonce:
            return f"the call of {call.name} has a wrong nonce; to make it, write it after {self._marker}:"
        if not self._echo_filter.is_echo(call, self._nonce if has_nonce else ""):
            return None
        error = f"the call of {call.name} is also in a prompt, a file or a result, so it may be a quotation"
        return error if has_nonce else f"{error}; to make it, write it after {self._marker}:"

    def add(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """Yield the events that an event of the inner stream becomes."""
        match event:
            case PartStart(_, Text() | Thought() as part):
                yield from self.read(part)
            case PartDelta(_, TextPartDelta(text)):
                yield from self.read(Text(text))
            case PartDelta(_, ThoughtPartDelta(text)):
                yield from self.read(Thought(text))
            case PartStart(index, part):
                self._open_parts[index] = part
            case PartEnd(index, part) if index in self._open_parts:
                yield from self.read(part or self._open_parts[index])
            case ModelResponse():
                yield from self.end()
                yield self.response(event)

    def end(self) -> list[PartEvent]:
        """Return the events for what was held back."""
        events = [event for piece in self._reader.end() for event in self._add_piece(piece)]
        return events + self._accumulator.end_current()

    def read(self, part: Part) -> list[PartEvent]:
        """Return the events for a part, without the text that may be a call."""
        if type(part) is not Text or not self._specs:
            return self._accumulator.add_part(part)
        return [event for piece in self._reader.feed(part.text) for event in self._add_piece(piece)]

    def _add_piece(self, piece: Piece) -> list[PartEvent]:
        if not isinstance(piece, RejectedCall):
            return self._accumulator.add_part(piece)
        spec = self._specs.get(piece.name or "")
        if piece.name is not None and spec is None:
            _log.warning("%s called invalid tool: %s", self._service, piece.name)
        else:
            _log.debug("Failed to parse tool arguments: %s", piece.error)
        may_be_empty = self._provider.on_bad_args == "empty" and piece.is_unreadable
        if may_be_empty and spec is not None and _accepts_no_arguments(spec):
            return self._accumulator.add_part(ToolCall(self._reader.next_id(), spec.name, {}))
        return self._accumulator.add_part(piece.part())

    def response(self, response: ModelResponse) -> ModelResponse:
        """Return the response with the calls that the model wrote."""
        data = msgspec.json.encode(TurnData(response.message, self._nonce))
        message = Message("model", self._accumulator.parts(), ProviderData(ORIGIN, Raw(data)))
        _log.debug("[%s] Response: %s", self._service, response.message.text)
        _log.debug("[%s] Tool Calls: %s", self._service, calls_as_dicts(message.calls))
        errors = [call.error for call in map(rejected_call, message.parts) if call is not None]
        is_changeable = response.finish_reason in (FinishReason.END, FinishReason.LENGTH, FinishReason.OTHER)
        if not errors or message.calls or not is_changeable:
            return replace(response, message=message)
        reason = FinishReason.MALFORMED_CALL
        if self._is_forbidden:
            reason = FinishReason.END if message.text.strip() else FinishReason.UNEXPECTED_CALL
        return replace(response, message=message, finish_reason=reason, finish_message="; ".join(errors[:_MAX_ERRORS]))


def _nonce(request: ModelRequest, *, guarded: bool) -> str:
    """Return the nonce of the conversation: the one of its earlier turns, or a new one.

    A guarded conversation has a random nonce. Any other has one that depends only on its tools and its system prompt,
    so that the same request gives the same prompt; a nonce that is in a prompt or a result proves nothing anyway.
    """
    for message in request.history:
        data = turn_data(message)
        if data is not None:
            return data.nonce
    if guarded:
        return urandom(6).hex()
    names = [tool.name for tool in request.config.tools]
    return sha256(repr((request.config.system, names)).encode("utf-8", "replace")).hexdigest()[:6]


def _accepts_no_arguments(spec: ToolSpec) -> bool:
    """Whether a tool may be called without arguments."""
    from midspan._schema.arguments import SchemaValidator  # loads the validator, which few need here

    return SchemaValidator(parameters_of(spec).schema).accepts({})


_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_ESCAPE_SEQUENCE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
# From Thai on, scripts without spaces between words: each letter is a token.
_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[^\W\d_\u0e00-\U0010ffff]+|[^\W\d_]")
_LITERALS = frozenset(["true", "false", "null"])
_QUOTES = r"[\"'“”`*\\]{0,6}"


class EchoFilter:
    """Detects calls that a model only repeats from the texts of the user, the results and the files.

    A call is an echo if one of these texts calls the same tool, in whatever form, and contains all words and numbers
    of the arguments. So a quotation is recognised even if the model changed spaces, quotes or the form of the call.
    The texts are read when the first call is checked.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = tuple(messages)
        self._calling: dict[str, list[tuple[str, frozenset[str | float]]]] = {}
        """The texts that call a tool, by its name, each with its tokens."""

    def is_echo(self, call: ToolCall, nonce: str) -> bool:
        """Whether this call may be a repetition. A call with a nonce repeats only texts that contain the nonce, too."""
        if call.name not in self._calling:
            pattern = _calls_of(call.name)
            self._calling[call.name] = [(text, _tokens(text)) for text in self._texts if pattern.search(text)]
        wanted = _tokens(_unescaped(_visible(json_text(call.arguments)))) - _LITERALS
        return any(nonce in text and wanted <= tokens for text, tokens in self._calling[call.name])

    @cached_property
    def _texts(self) -> list[str]:
        """The texts of users, results and files, raw and with their escape sequences decoded."""
        texts: list[str] = []
        for message in self._messages:
            if message.role == "user":
                blobs = [part for part in message.parts if isinstance(part, Blob)]
                blobs += [blob for result in message.results for blob in result.media]
                texts += [message.text, *map(result_text, message.results), *map(_file_text, blobs)]
        return [f"{text}\n{_unescaped(text)}" if "\\" in text else text for text in map(_visible, texts)]


def _visible(text: str) -> str:
    """Return a text without invisible characters, and with the usual form of letters that have several."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def _unescaped(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else " ", text)


def _tokens(text: str) -> frozenset[str | float]:
    """Return the words and the numbers of a text, without signs."""
    tokens = _TOKEN.findall(text.casefold())
    return frozenset(float(token) if token[0].isdecimal() else token for token in tokens)


def _calls_of(name: str) -> re.Pattern[str]:
    """Return an expression for the beginning of a call of this tool in any form."""
    tool = re.escape(name)
    return re.compile(
        rf"(?<![\w-]){tool}{_QUOTES}\s*[({{\[<]"
        rf"|(?:[>=\]|]|{_QUOTES}(?:{'|'.join(NAME_KEYS)}){_QUOTES}\s*:|(?i:action|call)\S{{0,80}}:)"
        rf"\s*{_QUOTES}(?:{NAMESPACE})?{tool}(?![\w-])"
    )


def _file_text(blob: Blob) -> str:
    is_media = blob.media_type.startswith(("image/", "audio/", "video/"))
    return "" if is_media or blob.base64 is None else blob.data.decode("utf-8", "ignore")
