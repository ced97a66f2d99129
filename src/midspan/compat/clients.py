"""Clients with conversations by id, messages as dicts, and tools from folders.

Each method is one step: `send_message` asks the model once, `handle_tool_response` executes the calls of its message
and asks again until the model answers or a final tool succeeds. `Agent` does all of that in one call.
"""

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from midspan._loop.blocking import run_blocking
from midspan._types.context import RunContext
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History
from midspan._types.parts import ToolCall
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.compat.messages import MessageDict, parse_json, to_dict, to_message
from midspan.errors import ConfigError, DuplicateTool, LimitReached
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.anthropic.decode import decode_response as decode_anthropic
from midspan.providers.anthropic.profile import DEFAULT_MODEL as DEFAULT_CLAUDE
from midspan.providers.encoding import adapted_tool
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.decode import response_and_token
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai.decode import decode_response as decode_openai
from midspan.providers.openai.profile import PRESETS
from midspan.providers.provider import Provider, WireProvider
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import execute
from midspan.tools.function import Tool, is_async

ToolDefinition = Mapping[str, Any]
"""`name`, `description`, `parameters` (a JSON Schema), `function`, and `final_tool`."""
ToolChoiceLike = str | dict[str, Any] | None
_QUESTION: MessageDict = {"role": "user", "content": "?"}


class Conversation(Struct):
    """One conversation of a client."""

    system_prompt: str | None
    available_tools: tuple[str, ...] | None
    """The names of the tools that this conversation may use; None for all."""
    messages: list[MessageDict]
    history: History
    """The same messages as the provider sent them, with signatures."""


class Client:
    """A model with conversations and tools. Subclasses name the API."""

    def __init__(
        self,
        api_key: str | None = None,
        model: str | None = None,
        *,
        provider: Provider | None = None,
        max_iterations: int = 500,
        **options: Any,
    ) -> None:
        """`options` are those of the provider: base_url, retry, transport, headers."""
        self.model = model or self._get_default_model()
        self._api_key, self._options = api_key, options
        self._is_given = provider is not None
        self.provider = provider or self._make_provider(options.get("headers"))
        self.max_iterations = max_iterations
        self.tools: dict[str, Tool[..., Any]] = {}
        self._conversations: dict[str, Conversation] = {}

    # What an API is

    def _get_api_name(self) -> str:
        raise NotImplementedError

    def _get_default_model(self) -> str:
        raise NotImplementedError

    def _should_split_tool_responses(self) -> bool:
        """Whether each result is a message of its own."""
        return False

    def _make_provider(self, headers: Mapping[str, str] | None) -> Provider:
        raise NotImplementedError

    # Tools

    def register_tool(self, definition: ToolDefinition, *, override: bool = False) -> str:
        """Register a tool and return its name."""
        name, function = definition.get("name"), definition.get("function")
        if not isinstance(name, str) or not callable(function):
            raise ConfigError(f"a tool needs a name and a function, got {dict(definition)!r:.120}")
        dialect = self.provider.profile.schema
        if dialect is not None and not dialect.functions.allows(name):
            raise ConfigError(f"{self._get_api_name()} does not accept the tool name {name!r}")
        if name in self.tools and not override:
            raise DuplicateTool(f"the tool {name!r} is already registered; pass override=True to replace it")
        parameters = dict(definition.get("parameters") or {"type": "object", "properties": {}})
        if definition.get("required"):
            parameters["required"] = list(definition["required"])

        async def call_async(context: Any, arguments: dict[str, Any]) -> MessageDict:
            return _outcome(await function(**{**arguments, **(context or {})}))

        def call(context: Any, arguments: dict[str, Any]) -> MessageDict:
            return _outcome(function(**{**arguments, **(context or {})}))

        self.tools[name] = tool_from_schema(
            name,
            str(definition.get("description") or ""),
            parameters,
            call_async if is_async(function) else call,
            final=bool(definition.get("final_tool")),
        )
        return name

    def register_tools(self, tools_dir: str | Path, *, override: bool = False) -> list[str]:
        """Register the tools of all `definitions.py` in a folder: each has a dict `DEFINITIONS` by name."""
        folder = Path(tools_dir)
        files = sorted(folder.rglob("definitions.py"))
        if not files:
            raise ConfigError(f"there is no definitions.py in {str(folder)!r}")
        names = []
        for file in files:
            definitions = _load(file).get("DEFINITIONS")
            if not isinstance(definitions, dict):
                raise ConfigError(f"{str(file)!r} has no dict DEFINITIONS")
            names += [
                self.register_tool({"name": name, **definition}, override=override)
                for name, definition in definitions.items()
            ]
        return names

    def execute_tool(self, tool_call: MessageDict, context: Mapping[str, Any] | None = None) -> MessageDict:
        """Execute a call, and return `success`, `message` and `data`. The context is merged into the arguments."""
        if tool_call.get("error"):
            return {"success": False, "message": str(tool_call["error"]), "data": None}
        arguments = parse_json(tool_call.get("arguments")) or {}
        if not isinstance(arguments, dict):
            return {"success": False, "message": "the arguments must be an object", "data": None}
        call = ToolCall(str(tool_call.get("id") or "1"), str(tool_call["name"]), arguments)
        tool = self.tools.get(call.name)
        if tool is None:
            return {"success": False, "message": f"unknown tool: {call.name}", "data": None}
        result = run_blocking(execute(tool, call, RunContext(dict(context or {}))))
        if result.is_error:
            return {"success": False, "message": str(result.model_value), "data": None}
        if isinstance(result.value, dict):
            return result.value
        return {"success": True, "message": "", "data": result.value}  # it was cut, or cannot be shown as data

    # Conversations

    def create_conversation(
        self, system_prompt: str | None = None, available_tools: Iterable[str] | None = None
    ) -> str:
        """Start a conversation and return its id."""
        names = None if available_tools is None else tuple(available_tools)
        if names is not None and (unknown := [name for name in names if name not in self.tools]):
            raise ConfigError(f"unknown tools: {', '.join(unknown)}")
        conversation_id = uuid4().hex
        self._conversations[conversation_id] = Conversation(system_prompt, names, [], History())
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
        before = list(conversation.messages), conversation.history
        try:
            if prompt is not None:
                self._append(conversation, {"role": "user", "content": prompt})
            request = self._request(conversation, max_tokens, tool_choice)
            response = self._generate(request, extra_headers)
        except BaseException:
            conversation.messages, conversation.history = before  # so that the message can be sent again
            raise
        message = to_dict(response.message, is_complete=response.finish_reason is FinishReason.END)
        conversation.messages.append(message)
        conversation.history = conversation.history.append(response.message)
        return {**message, "conversation_id": conversation_id}

    def handle_tool_response(
        self, message: MessageDict, context: Mapping[str, Any] | None = None, **options: Any
    ) -> MessageDict:
        """Execute the calls of a message and send the results, until the model answers or a final tool succeeds."""
        conversation = self._conversation(str(message.get("conversation_id")))
        for _ in range(self.max_iterations):
            calls = [block["tool_call"] for block in message["content"] if block["type"] == "tool_call"]
            if not calls:
                return message
            allowed = conversation.available_tools
            outcomes = [
                self.execute_tool(call, context)
                if allowed is None or call["name"] in allowed
                else {"success": False, "message": f"unknown tool: {call['name']}", "data": None}
                for call in calls
            ]
            responses = [
                self._format_tool_response(call["id"], msgspec.json.encode(outcome).decode(), call["name"])
                for call, outcome in zip(calls, outcomes, strict=True)
            ]
            if not self._should_split_tool_responses():
                responses = [{"role": "tool", "content": [block for one in responses for block in one["content"]]}]
            for response in responses:
                self._append(conversation, response)
            if any(
                outcome["success"] and self.tools[call["name"]].final
                for call, outcome in zip(calls, outcomes, strict=True)
            ):
                return {**responses[-1], "conversation_id": message["conversation_id"]}
            message = self.send_message(None, message["conversation_id"], **options)
        raise LimitReached(f"the model still calls tools after {self.max_iterations} turns")

    def _conversation(self, conversation_id: str) -> Conversation:
        if conversation_id not in self._conversations:
            raise ConfigError(f"unknown conversation {conversation_id!r}")
        return self._conversations[conversation_id]

    def _append(self, conversation: Conversation, message: MessageDict) -> None:
        conversation.messages.append(message)
        conversation.history = conversation.history.append(to_message(message))

    def _request(self, conversation: Conversation, max_tokens: int | None, tool_choice: ToolChoiceLike) -> ModelRequest:
        names = self.tools if conversation.available_tools is None else conversation.available_tools
        specs = tuple(adapted_tool(self.tools[name].spec, self.provider.profile) for name in names)
        config = self._config(conversation.system_prompt, max_tokens, specs, tool_choice)
        return ModelRequest(config, conversation.history)

    def _config(
        self, system: str | None, max_tokens: int | None, tools: tuple[ToolSpec, ...], choice: ToolChoiceLike
    ) -> RequestConfig:
        tool_choice = ToolChoice.of(choice) if choice is not None and tools else None
        return RequestConfig(self.model, system, tools, tool_choice, ModelSettings(max_tokens=max_tokens))

    def _generate(self, request: ModelRequest, extra_headers: Mapping[str, str] | None) -> ModelResponse:
        if not extra_headers:
            return run_blocking(self.provider.generate(request))
        if self._is_given:
            raise ConfigError("extra_headers need a client that makes its own provider")
        provider = self._make_provider({**(self._options.get("headers") or {}), **extra_headers})

        async def generate() -> ModelResponse:
            try:
                return await provider.generate(request)
            finally:
                await provider.aclose()

        return run_blocking(generate())

    def close(self) -> None:
        """Close connections."""
        run_blocking(self.provider.aclose())

    # The API's own forms

    def _make_api_call(
        self,
        messages: list[MessageDict],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        tools: Iterable[ToolDefinition] | None = None,
        tool_choice: ToolChoiceLike = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> MessageDict:
        """Send messages, and return the response of the API as it came."""
        specs = tuple(ToolSpec.of(_declaration(tool)) for tool in tools or ())
        config = self._config(system_prompt, max_tokens, specs, tool_choice)
        request = ModelRequest(config, History(map(to_message, messages)))
        document: MessageDict = msgspec.json.decode(self._generate(request, extra_headers).raw[0])
        return document

    def _encoded(
        self, message: MessageDict, tools: Iterable[ToolDefinition] = (), choice: ToolChoiceLike = None
    ) -> Any:
        """Return the body of a request with these parts."""
        specs = tuple(ToolSpec.of(_declaration(tool)) for tool in tools)
        request = ModelRequest(self._config(None, None, specs, choice), History([to_message(message)]))
        assert isinstance(self.provider, WireProvider)
        return msgspec.json.decode(self.provider.wire_request(request, stream=False).body)

    def _convert_tool_to_api_format(self, tool: ToolDefinition) -> MessageDict:
        converted: MessageDict = self._encoded(_QUESTION, [tool])["tools"][0]
        return converted

    def _convert_message_to_api_format(self, message: MessageDict) -> MessageDict:
        converted: MessageDict = self._encoded(message)["messages"][0]
        return converted

    def _convert_tool_choice_to_api_format(self, tool_choice: ToolChoiceLike) -> Any:
        name = tool_choice.get("tool") if isinstance(tool_choice, dict) else None
        return self._encoded(_QUESTION, [{"name": name or "any"}], tool_choice).get("tool_choice")

    def _convert_api_response_to_message(self, response: Any) -> MessageDict:
        body = response if isinstance(response, bytes) else msgspec.json.encode(response)
        return to_dict(self._decode(body).message)

    def _decode(self, body: bytes) -> ModelResponse:
        raise NotImplementedError

    def _format_tool_response(
        self, tool_call_id: str, response: str | None = None, tool_name: str | None = None
    ) -> MessageDict:
        """Return the message with a result. Alone, the first argument is JSON with all three."""
        if response is None:
            fields = parse_json(tool_call_id)
            if not isinstance(fields, dict):
                raise ConfigError("pass the id of the call, the response and the name of the tool, or JSON with them")
            tool_call_id, tool_name = str(fields.get("tool_call_id")), fields.get("name")
            response = fields.get("response", fields.get("content"))
        block = {"tool_call_id": tool_call_id, "name": tool_name or "", "content": response}
        return {"role": "tool", "content": [{"type": "tool_response", "tool_response": block}]}


class GeminiClient(Client):
    """Gemini, with all results of a turn in one message."""

    def _get_api_name(self) -> str:
        return "Gemini"

    def _get_default_model(self) -> str:
        return DEFAULT_MODEL

    def _make_provider(self, headers: Mapping[str, str] | None) -> Provider:
        return Gemini(self.model, **{**self._options, "api_key": self._api_key, "headers": headers})

    def _convert_tool_to_api_format(self, tool: ToolDefinition) -> MessageDict:
        declaration: MessageDict = super()._convert_tool_to_api_format(tool)["functionDeclarations"][0]
        return declaration

    def _convert_message_to_api_format(self, message: MessageDict) -> MessageDict:
        converted: MessageDict = self._encoded(message)["contents"][0]
        return converted

    def _convert_tool_choice_to_api_format(self, tool_choice: ToolChoiceLike) -> Any:
        name = tool_choice.get("tool") if isinstance(tool_choice, dict) else None
        return self._encoded(_QUESTION, [{"name": name or "any"}], tool_choice).get("toolConfig")

    def _decode(self, body: bytes) -> ModelResponse:
        return response_and_token(body, Api.DEVELOPER)[0]


class OpenAIClient(Client):
    """OpenAI and compatible services (`preset="openrouter"`), with a message for each result."""

    def _get_api_name(self) -> str:
        return "OpenAI"

    def _get_default_model(self) -> str:
        return PRESETS["openai"].default_model or ""

    def _should_split_tool_responses(self) -> bool:
        return True

    def _make_provider(self, headers: Mapping[str, str] | None) -> Provider:
        return OpenAI(self.model, **{**self._options, "api_key": self._api_key, "headers": headers})

    def _decode(self, body: bytes) -> ModelResponse:
        return decode_openai(body, PRESETS["openai"])


class AnthropicClient(Client):
    """Claude, with all results of a turn in one message."""

    def _get_api_name(self) -> str:
        return "Anthropic"

    def _get_default_model(self) -> str:
        return DEFAULT_CLAUDE

    def _make_provider(self, headers: Mapping[str, str] | None) -> Provider:
        return Anthropic(self.model, **{**self._options, "api_key": self._api_key, "headers": headers})

    def _decode(self, body: bytes) -> ModelResponse:
        return decode_anthropic(body)


def _outcome(value: Any) -> MessageDict:
    """Return what a function returned as `success`, `message` and `data`."""
    if isinstance(value, dict) and "success" in value:
        return {"message": "", "data": None, **value}
    return {"success": True, "message": "", "data": value}


def _declaration(tool: ToolDefinition) -> MessageDict:
    parameters = dict(tool.get("parameters") or {"type": "object", "properties": {}})
    if tool.get("required"):
        parameters["required"] = list(tool["required"])
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": parameters}


def _load(file: Path) -> dict[str, Any]:
    """Execute a Python file and return its names."""
    spec = importlib.util.spec_from_file_location(f"midspan_definitions_{uuid4().hex}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(file)!r} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)
