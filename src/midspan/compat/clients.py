"""Clients with conversations by id, messages as dicts, and tools from folders.

Each method is one step: `send_message` asks the model once, `handle_tool_response` executes the calls of its message
and asks again until the model answers or a final tool succeeds. `Agent` does all of that in one call.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.blocking import run_blocking
from midspan._schema.adapt import adapt_spec
from midspan._types.context import RunContext
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import ROLES, History, Message
from midspan._types.parts import Part, Text, ToolCall, ToolResult, local_id
from midspan._types.specs import AnyTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ConfigError, DuplicateToolError, LimitReachedError
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.anthropic.decode import decode_response as decode_anthropic
from midspan.providers.anthropic.profile import DEFAULT_MODEL as DEFAULT_CLAUDE
from midspan.providers.encoding import adapted_tool, json_text
from midspan.providers.gemini.capabilities import DEFAULT_MODEL
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.decode import response as decode_gemini
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai.decode import decode_response as decode_openai
from midspan.providers.openai.profile import PRESETS
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import execute
from midspan.tools.files import load_module
from midspan.tools.function import Tool

MessageDict = dict[str, Any]
"""A message: roles user, assistant and tool; a string, or blocks of text, tool_call and tool_response."""
ToolDefinition = Mapping[str, Any]
"""`name`, `description`, `parameters` (a JSON Schema), `function`, and `final_tool`."""
ToolChoiceLike = str | dict[str, Any] | None
AnyProvider = Anthropic | Gemini | OpenAI
_QUESTION: MessageDict = {"role": "user", "content": "?"}


class StoredConversation(Struct):
    """One conversation of a client."""

    system_prompt: str | None
    available_tools: tuple[str, ...] | None
    """The names of the tools that this conversation may use; None for all."""
    messages: list[MessageDict]
    history: History
    """The same messages as the provider sent them, with signatures."""


class Client:
    """The base class: a model with conversations and tools. Subclasses name the API."""

    _api_name: str
    _default_model: str
    _provider_class: Callable[..., AnyProvider]
    _decode: Callable[[bytes], ModelResponse]
    _messages_field = "messages"
    _choice_field = "tool_choice"

    def __init__(
        self, api_key: str | None = None, model: str | None = None, *, max_iterations: int = 500, **options: Any
    ) -> None:
        """`options` are those of the provider: base_url, retry, transport, headers."""
        self.model = model or self._get_default_model()
        self._api_key, self._options = api_key, options
        self.provider = self._make_provider(options.get("headers"))
        self.max_iterations = max_iterations
        self.tools: dict[str, Tool[..., Any]] = {}
        self._conversations: dict[str, StoredConversation] = {}

    def _get_api_name(self) -> str:
        return self._api_name

    def _get_default_model(self) -> str:
        return self._default_model

    def _should_split_tool_responses(self) -> bool:
        """Whether each result is a message of its own."""
        return False

    def _make_provider(self, headers: Mapping[str, str] | None) -> AnyProvider:
        return self._provider_class(self.model, **{**self._options, "api_key": self._api_key, "headers": headers})

    def register_tool(self, definition: ToolDefinition, *, override: bool = False) -> str:
        """Register a tool and return its name."""
        name, function = definition.get("name"), definition.get("function")
        if not isinstance(name, str) or not callable(function):
            raise ConfigError(f"a tool needs a name and a function, got {dict(definition)!r:.120}")
        dialect = self.provider.profile.schema
        if dialect is not None and not dialect.functions.allows(name):
            raise ConfigError(f"{self._get_api_name()} does not accept the tool name {name!r}")
        if name in self.tools and not override:
            raise DuplicateToolError(f"the tool {name!r} is already registered; pass override=True to replace it")

        def call(context: Any, arguments: dict[str, Any]) -> Any:
            return function(**{**arguments, **(context or {})})

        description, is_final = str(definition.get("description") or ""), bool(definition.get("final_tool"))
        self.tools[name] = tool_from_schema(name, description, _parameters(definition), call, final=is_final)
        return name

    def register_tools(self, tools_dir: str | Path, *, override: bool = False) -> list[str]:
        """Register the tools of all `definitions.py` in a folder: each has a dict `DEFINITIONS` by name."""
        files = sorted(Path(tools_dir).rglob("definitions.py"))
        if not files:
            raise ConfigError(f"there is no definitions.py in {str(tools_dir)!r}")
        names = []
        for file in files:
            definitions = getattr(load_module(str(file)), "DEFINITIONS", None)
            if not isinstance(definitions, dict):
                raise ConfigError(f"{str(file)!r} has no dict DEFINITIONS")
            for name, definition in definitions.items():
                names.append(self.register_tool({"name": name, **definition}, override=override))
        return names

    def execute_tool(self, tool_call: MessageDict, context: Mapping[str, Any] | None = None) -> MessageDict:
        """Execute a call, and return `success`, `message` and `data`. The context is merged into the arguments."""
        if tool_call.get("error"):
            return _failure(str(tool_call["error"]))
        try:
            call = _to_call(tool_call)
        except ConfigError as error:
            return _failure(str(error))
        if call.name not in self.tools:
            return _failure(f"unknown tool: {call.name}")
        tool, dialect = self.tools[call.name], self.provider.profile.schema
        if dialect is not None:  # the model got the schema with property names that its API accepts
            call = replace(call, arguments=adapt_spec(tool.spec, dialect)[1].restore_names(call.arguments))
        result = run_blocking(execute(tool, call, RunContext(dict(context or {}))))
        if result.is_error:
            return _failure(str(result.model_value))
        if isinstance(result.value, dict) and "success" in result.value:
            return {"message": "", "data": None, **result.value}
        return {"success": True, "message": "", "data": result.value}

    def create_conversation(
        self, system_prompt: str | None = None, available_tools: Iterable[str] | None = None
    ) -> str:
        """Start a conversation and return its id."""
        names = None if available_tools is None else tuple(available_tools)
        if names is not None and (unknown := [name for name in names if name not in self.tools]):
            raise ConfigError(f"unknown tools: {', '.join(unknown)}")
        conversation_id = uuid4().hex
        self._conversations[conversation_id] = StoredConversation(system_prompt, names, [], History())
        return conversation_id

    def get_messages(self, conversation_id: str) -> list[MessageDict]:
        """Return the messages of a conversation."""
        return list(self._conversation(conversation_id).messages)

    def send_message(
        self,
        prompt: str | None = None,
        conversation_id: str | None = None,
        *,
        max_tokens: int | None = None,
        tool_choice: ToolChoiceLike = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> MessageDict:
        """Ask the model once, and return its message with the `conversation_id`."""
        conversation_id = conversation_id or self.create_conversation()
        conversation = self._conversation(conversation_id)
        asked = [] if prompt is None else [{"role": "user", "content": prompt}]
        history = conversation.history.append(*map(to_message, asked))
        names = self.tools if conversation.available_tools is None else conversation.available_tools
        specs = tuple(adapted_tool(self.tools[name].spec, self.provider.profile) for name in names)
        config = self._config(conversation.system_prompt, max_tokens, specs, tool_choice)
        response = self._generate(ModelRequest(config, history), extra_headers)
        message = to_dict(response.message, is_complete=response.finish_reason is FinishReason.END)
        conversation.messages += [*asked, message]
        conversation.history = history.append(response.message)
        return {**message, "conversation_id": conversation_id}

    def handle_tool_response(
        self, message: MessageDict, context: Mapping[str, Any] | None = None, **options: Any
    ) -> MessageDict:
        """Execute the calls of a message and send the results, until the model answers or a final tool succeeds."""
        conversation = self._conversation(message.get("conversation_id"))
        for _ in range(self.max_iterations):
            blocks = [] if isinstance(message["content"], str) else message["content"]
            calls = [block["tool_call"] for block in blocks if block["type"] == "tool_call"]
            if not calls:
                return message
            allowed = self.tools if conversation.available_tools is None else conversation.available_tools
            responses, is_final = [], False
            for call in calls:
                id, name = call["id"], call["name"]
                outcome = self.execute_tool(call, context) if name in allowed else _failure(f"unknown tool: {name}")
                is_final = is_final or bool(outcome["success"] and self.tools[name].final)
                responses.append(self._format_tool_response(id, json_text(outcome), name))
            if not self._should_split_tool_responses():
                responses = [{"role": "tool", "content": [block for item in responses for block in item["content"]]}]
            conversation.messages += responses
            conversation.history = conversation.history.append(*map(to_message, responses))
            if is_final:
                return {**responses[-1], "conversation_id": message["conversation_id"]}
            message = self.send_message(None, message["conversation_id"], **options)
        raise LimitReachedError(f"the model still calls tools after {self.max_iterations} turns")

    def _conversation(self, conversation_id: str | None) -> StoredConversation:
        if conversation_id is None:
            raise ConfigError("the message has no conversation_id; pass one that send_message returned")
        if conversation_id not in self._conversations:
            raise ConfigError(f"unknown conversation {conversation_id!r}")
        return self._conversations[conversation_id]

    def _config(
        self, system: str | None, max_tokens: int | None, tools: tuple[AnyTool, ...], choice: ToolChoiceLike
    ) -> RequestConfig:
        tool_choice = ToolChoice.of(choice) if choice is not None and tools else None
        return RequestConfig(self.model, system, tools, tool_choice, ModelSettings(max_tokens=max_tokens))

    def _generate(self, request: ModelRequest, extra_headers: Mapping[str, str] | None) -> ModelResponse:
        if not extra_headers:
            return run_blocking(self.provider.generate(request))

        async def generate() -> ModelResponse:
            headers = {**(self._options.get("headers") or {}), **extra_headers}
            async with self._make_provider(headers) as provider:
                return await provider.generate(request)

        return run_blocking(generate())

    def close(self) -> None:
        """Close connections."""
        run_blocking(self.provider.aclose())

    def _make_api_call(
        self,
        messages: list[MessageDict],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        tools: Iterable[ToolDefinition] | None = None,
        tool_choice: ToolChoiceLike = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send messages, and return the response of the API as it came."""
        config = self._config(system_prompt, max_tokens, _specs(tools), tool_choice)
        request = ModelRequest(config, History(map(to_message, messages)))
        return msgspec.json.decode(self._generate(request, extra_headers).raw[0])

    def _encoded(
        self, message: MessageDict, tools: Iterable[ToolDefinition] = (), choice: ToolChoiceLike = None
    ) -> Any:
        """Return the body of a request with these parts."""
        request = ModelRequest(self._config(None, None, _specs(tools), choice), History([to_message(message)]))
        return msgspec.json.decode(self.provider.wire_request(request, stream=False).body)

    def _convert_tool_to_api_format(self, tool: ToolDefinition) -> Any:
        return self._encoded(_QUESTION, [tool])["tools"][0]

    def _convert_message_to_api_format(self, message: MessageDict) -> Any:
        return self._encoded(message)[self._messages_field][0]

    def _convert_tool_choice_to_api_format(self, tool_choice: ToolChoiceLike) -> Any:
        name = tool_choice.get("tool") if isinstance(tool_choice, dict) else None
        return self._encoded(_QUESTION, [{"name": name or "any"}], tool_choice).get(self._choice_field)

    def _convert_api_response_to_message(self, response: Any) -> MessageDict:
        body = response if isinstance(response, bytes) else msgspec.json.encode(response)
        return to_dict(self._decode(body).message)

    def _format_tool_response(
        self, tool_call_id: str, response: str | None = None, tool_name: str | None = None
    ) -> MessageDict:
        """Return the message with a result. Alone, the first argument is JSON with all three."""
        if response is None:
            fields = parse_if_json(tool_call_id)
            if not isinstance(fields, dict):
                raise ConfigError("pass the id of the call, the response and the name of the tool, or JSON with them")
            tool_call_id, tool_name = str(fields.get("tool_call_id")), fields.get("name")
            response = fields.get("response", fields.get("content"))
        block = {"tool_call_id": tool_call_id, "name": tool_name or "", "content": response}
        return {"role": "tool", "content": [{"type": "tool_response", "tool_response": block}]}


class GeminiClient(Client):
    """Gemini, with all results of a turn in one message."""

    _api_name, _default_model, _provider_class = "Gemini", DEFAULT_MODEL, Gemini
    _messages_field, _choice_field = "contents", "toolConfig"
    _decode = staticmethod(decode_gemini)

    def _convert_tool_to_api_format(self, tool: ToolDefinition) -> Any:
        return super()._convert_tool_to_api_format(tool)["functionDeclarations"][0]


class OpenAIClient(Client):
    """OpenAI and compatible services (`preset="openrouter"`), with a message for each result."""

    _api_name, _default_model, _provider_class = "OpenAI", PRESETS["openai"].default_model or "", OpenAI
    _decode = staticmethod(partial(decode_openai, preset=PRESETS["openai"]))

    def _should_split_tool_responses(self) -> bool:
        return True


class AnthropicClient(Client):
    """Claude, with all results of a turn in one message."""

    _api_name, _default_model, _provider_class = "Anthropic", DEFAULT_CLAUDE, Anthropic
    _decode = staticmethod(decode_anthropic)


def _failure(message: str) -> MessageDict:
    return {"success": False, "message": message, "data": None}


def _specs(tools: Iterable[ToolDefinition] | None) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool["name"], tool.get("description", ""), _parameters(tool)) for tool in tools or ())


def _parameters(tool: ToolDefinition) -> MessageDict:
    """Return the schema of the parameters; `required` may be a sibling of it."""
    parameters = dict(tool.get("parameters") or {"type": "object", "properties": {}})
    return {**parameters, "required": list(tool["required"])} if tool.get("required") else parameters


def to_message(message: MessageDict) -> Message:
    """Return a message from its dict. An unknown role counts as the user's."""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ConfigError(f"the content of a message must be a string or a list of blocks, got {content!r:.80}")
    return Message(ROLES.get(str(message.get("role")), "user"), tuple(_to_part(block) for block in blocks))


def _to_part(block: Any) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "tool_call", "tool_call": {"name": str()} as call}:
            return _to_call(call)
        case {"type": "tool_response", "tool_response": {"name": str(name), **fields}}:
            return ToolResult(str(fields.get("tool_call_id") or name), name, parse_if_json(fields.get("content")))
    raise ConfigError(f"unknown block {block!r:.120}; known types: text, tool_call, tool_response")


def _to_call(fields: MessageDict) -> ToolCall:
    arguments: Any = parse_if_json(fields.get("arguments")) or {}
    if not isinstance(arguments, dict):
        raise ConfigError(f"the arguments of a call must be a dict, got {arguments!r:.80}")
    if not isinstance(name := fields.get("name"), str):
        raise ConfigError(f"a call needs a name, got {fields!r:.80}")
    return ToolCall(str(fields.get("id") or local_id()), name, arguments)


def to_dict(message: Message, *, is_complete: bool = True) -> MessageDict:
    """Return a message of a model as a dict. A call that must not be executed has an `error`."""
    blocks: list[MessageDict] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = {"id": part.id, "name": part.name, "arguments": part.arguments}
            error = part.arguments_error or (None if is_complete else "the response was cut off; make the call again")
            blocks.append({"type": "tool_call", "tool_call": {**call, "error": error} if error else call})
    return {"role": "assistant", "content": blocks}


def parse_if_json(content: Any) -> Any:
    """Return the value of a string that is JSON; everything else as it is."""
    if not isinstance(content, str):
        return content
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return content
