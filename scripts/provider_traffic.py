"""The wires of other providers than Gemini, as `replay_traffic` checks them.

A `Wire` reads a recorded request as our own values, which are encoded again and must give the recorded request: what
the wire adds is kept in `provider_data` by part, never as the whole request. `normalized` removes the freedom that an
API gives its clients, such as a string instead of a list with one text.
"""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import CachePolicy, ModelRequest, ModelResponse, Output, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ProviderError
from midspan.providers.anthropic import client as anthropic
from midspan.providers.anthropic.decode import StreamDecoder as AnthropicDecoder
from midspan.providers.anthropic.decode import decode_response as decode_anthropic
from midspan.providers.anthropic.encode import request_body as encode_anthropic
from midspan.providers.anthropic.profile import capabilities_of as claude_capabilities
from midspan.providers.openai import client as openai
from midspan.providers.openai.decode import StreamDecoder as ChatDecoder
from midspan.providers.openai.decode import decode_response as decode_chat
from midspan.providers.openai.encode import request_body as encode_chat
from midspan.providers.openai.profile import PRESETS

Json = dict[str, Any]


class Decoder(Protocol):
    def feed(self, piece: bytes) -> Iterable[Any]: ...

    def end(self) -> Iterable[Any]: ...

    def response(self) -> ModelResponse: ...


class RecordedStatus:
    """As much of a response as the conversion of errors reads."""

    def __init__(self, status: int) -> None:
        self.status = status

    def header(self, _: str) -> None:
        return None


class Wire(Protocol):
    def read(self, request: Json) -> ModelRequest: ...

    def encode(self, request: ModelRequest, recorded: Json) -> Json: ...

    def normalized(self, request: Json) -> Json: ...

    def decode(self, body: bytes) -> ModelResponse: ...

    def decoder(self) -> Decoder: ...

    def error(self, status: int, body: bytes) -> ProviderError: ...


def raw_data(origin: str, extra: Json) -> ProviderData | None:
    return ProviderData(origin, Raw(msgspec.json.encode(extra))) if extra else None


def rest_of(fields: Json, known: Iterable[str]) -> Json:
    return {name: value for name, value in fields.items() if name not in set(known) and value is not None}


class AnthropicWire:
    """Anthropic's Messages API, also by Vertex."""

    origin = "anthropic"

    def read(self, request: Json) -> ModelRequest:
        known = ["model", "messages", "system", "tools", "tool_choice", "max_tokens", "stream", "thinking",
                 "temperature", "top_p", "top_k", "stop_sequences", "anthropic_version", "cache_control",
                 "output_format", "output_config"]  # fmt: skip
        names: dict[str, str] = {}
        messages = [self._message(message, names) for message in request["messages"]]
        system = request.get("system")
        marks: dict[str, Json] = {}
        if isinstance(system, list):
            marks |= {"system": block["cache_control"] for block in system if block.get("cache_control")}
            system = "".join(block["text"] for block in system)
        tools = [self._tool(tool) for tool in request.get("tools") or []]
        marks |= {"tools": tool["cache_control"] for tool in request.get("tools") or [] if tool.get("cache_control")}
        if request.get("cache_control"):
            marks["messages"] = request["cache_control"]
        extra = rest_of(request, known)
        output_config = dict(request.get("output_config") or {})
        output = output_config.pop("format", None) or request.get("output_format")
        if output_config:
            extra["output_config"] = {**output_config, **({"format": output} if output else {})}
        settings = ModelSettings(
            max_tokens=request["max_tokens"],
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            top_k=request.get("top_k"),
            stop=tuple(request.get("stop_sequences") or ()),
            thinking=self._thinking(request.get("thinking") or {}),
            extra=extra,
        )
        config = RequestConfig(
            request.get("model", "claude-on-vertex"),
            system,
            tuple(tools),
            self._choice(request.get("tool_choice")),
            settings,
            None if output is None else Output(output["schema"]),
            None if not marks else CachePolicy(ttl_seconds=_ttl(marks), parts=tuple(marks)),  # type: ignore[arg-type]
        )
        return ModelRequest(config, History(messages))

    def _thinking(self, thinking: Json) -> int | None:
        return {"enabled": thinking.get("budget_tokens"), "adaptive": -1, "disabled": 0}.get(thinking.get("type", ""))

    def _choice(self, choice: Json | None) -> ToolChoice | None:
        if choice is None:
            return None
        parallel = None if "disable_parallel_tool_use" not in choice else not choice["disable_parallel_tool_use"]
        if choice["type"] == "tool":
            return ToolChoice("any", (choice["name"],), parallel)
        return ToolChoice(choice["type"], (), parallel)

    def _tool(self, tool: Json) -> AnyTool:
        known = ("type", "name", "description", "input_schema", "strict", "cache_control")
        if tool.get("type") not in (None, "custom") or rest_of(tool, known):
            return BuiltinTool(tool.get("type", "custom"), rest_of(tool, ("type", "cache_control")))
        return ToolSpec(tool["name"], tool.get("description", ""), tool["input_schema"], strict=tool.get("strict"))

    def _message(self, message: Json, names: dict[str, str]) -> Message:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = tuple(self._part(block, names) for block in content)
        if message["role"] == "system":
            return Message("user", parts, raw_data(self.origin, message))
        if message["role"] == "user":
            return Message("user", parts)
        return Message("model", parts, ProviderData(self.origin))

    def _part(self, block: Json, names: dict[str, str]) -> Part:
        def extra(*known: str) -> ProviderData | None:
            return raw_data(self.origin, rest_of(block, ("type", *known)))

        match block:
            case {"type": "text", "text": text}:
                return Text(text, extra("text"))
            case {"type": "thinking", "thinking": text}:
                return Thought(text, raw_data(self.origin, block))
            case {"type": "tool_use", "id": id, "name": name, "input": arguments}:
                names[id] = name
                return ToolCall(id, name, arguments, provider_data=extra("id", "name", "input"))
            case {"type": "tool_result", "tool_use_id": id}:
                content = block.get("content", "")
                listed = [] if isinstance(content, str) else content
                if any(part["type"] not in ("text", "image", "document") for part in listed):
                    return Opaque("tool_result", ProviderData(self.origin, Raw(msgspec.json.encode(block))))
                parts = tuple(self._content(part) for part in listed)
                data = extra("tool_use_id", "content", "is_error")
                value = content if isinstance(content, str) else None
                is_error = bool(block.get("is_error"))
                return ToolResult(id, names.get(id, "?"), value, is_error, parts, provider_data=data)
            case {"type": "image" | "document"} if not rest_of(block, ("type", "source")):
                return self._content(block)
        return Opaque(block["type"], ProviderData(self.origin, Raw(msgspec.json.encode(block))))

    def _content(self, block: Json) -> Text | Blob:
        match block:
            case {"type": "text", "text": text}:
                return Text(text)
            case {"source": {"type": "url", "url": url}}:
                return Blob("image/*" if block["type"] == "image" else "application/pdf", url=url)
            case {"source": {"type": "file", "file_id": id}}:
                return Blob("image/*" if block["type"] == "image" else "application/pdf", url=id)
            case {"source": {"media_type": media_type, "data": data}}:
                return Blob(media_type, base64=data)
        raise ValueError(f"unknown content {block}")

    def encode(self, request: ModelRequest, recorded: Json) -> Json:
        on_vertex = "anthropic_version" in recorded
        model = request.config.model
        body = encode_anthropic(
            request, claude_capabilities(model), stream=bool(recorded.get("stream")), vertex=on_vertex
        )
        return json.loads(body)  # type: ignore[no-any-return]

    def normalized(self, request: Json) -> Json:
        request = {name: value for name, value in without_nulls(request).items() if value is not None}
        if not request.get("stream"):
            request.pop("stream", None)
        if "output_format" in request:  # its name while it was new
            request.setdefault("output_config", {})["format"] = request.pop("output_format")
        if "system" in request:
            request["system"] = texts(request["system"])
        for tool in request.get("tools") or []:
            if tool.get("type") == "custom":
                del tool["type"]
            if tool.get("description") == "":
                del tool["description"]
        turns: list[Json] = []
        for message in request["messages"]:
            blocks = [self._normalized_block(block) for block in texts(message["content"])]
            if turns and turns[-1]["role"] == message["role"]:
                turns[-1]["content"] += blocks
            else:
                turns.append({**message, "content": blocks})
        for turn in turns:
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
        return {**request, "messages": turns}

    def _normalized_block(self, block: Json) -> Json:
        if block["type"] != "tool_result":
            return block
        block = {**block, "content": [part for part in texts(block.get("content", "")) if part.get("text") != ""]}
        if not block.get("is_error"):
            block.pop("is_error", None)
        return block

    decode = staticmethod(decode_anthropic)

    def decoder(self) -> Decoder:
        return AnthropicDecoder(anthropic.event_error)

    def error(self, status: int, body: bytes) -> ProviderError:
        return anthropic.parse_error(RecordedStatus(status), body)  # type: ignore[arg-type]


class ChatWire:
    """OpenAI's Chat Completions API, and compatible ones."""

    def __init__(self, provider: str = "openai-chat") -> None:
        host = provider.partition(":")[2]
        names = {"openrouter.ai": "openrouter", "mistral.ai": "mistral", "groq.com": "groq", "ollama.com": "ollama",
                 "deepseek.com": "deepseek", "x.ai": "xai", "together.xyz": "together"}  # fmt: skip
        self.preset = PRESETS[names.get(host, "openai" if not host else "vllm")]

    def read(self, request: Json) -> ModelRequest:
        in_results = [item for message in request["messages"] if message["role"] == "tool"
                      for item in texts(message["content"]) if item["type"] != "text"]  # fmt: skip
        self.preset = replace(self.preset, media_in_results=bool(in_results))
        system: list[str] = []
        messages: list[Message] = []
        names: dict[str, str] = {}
        for message in request["messages"]:
            if message["role"] in ("system", "developer") and not messages:
                system.append(message["content"])
            else:
                messages += self._message(message, names)
        known = ["model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
                 "temperature", "top_p", "stop", "seed", self.preset.max_tokens_field, "reasoning_effort",
                 "presence_penalty", "frequency_penalty"]  # fmt: skip
        output = request.get("response_format")
        schema = (output or {}).get("json_schema") or {}
        is_plain = not rest_of(schema, ("name", "schema")) and schema.get("name") == schema.get("schema", {}).get("title")
        if output is None or (is_plain and schema):
            known.append("response_format")
        stop = request.get("stop") or ()
        settings = ModelSettings(
            max_tokens=request.get(self.preset.max_tokens_field),
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            seed=request.get("seed"),
            thinking=request.get("reasoning_effort"),
            extra=rest_of(request, known),
        )
        config = RequestConfig(
            request["model"],
            "\n\n".join(system) or None,
            tuple(self._tool(tool) for tool in request.get("tools") or []),
            self._choice(request.get("tool_choice"), request.get("parallel_tool_calls")),
            settings,
            Output(schema["schema"]) if is_plain and schema else None,
        )
        return ModelRequest(config, History(messages))

    def _choice(self, choice: Any, parallel: bool | None) -> ToolChoice | None:
        if choice is None:
            return None if parallel is None else ToolChoice("auto", (), parallel)
        if isinstance(choice, dict):
            return ToolChoice("any", (choice["function"]["name"],), parallel)
        return ToolChoice("any" if choice in ("required", "any") else choice, (), parallel)

    def _tool(self, tool: Json) -> AnyTool:
        function = tool["function"]
        return ToolSpec(function["name"], function.get("description", ""), function["parameters"],
                        strict=function.get("strict"))  # fmt: skip

    def _message(self, message: Json, names: dict[str, str]) -> list[Message]:
        content = message.get("content")
        origin = self.preset.name
        if message["role"] == "tool":
            id = message["tool_call_id"]
            value = content if isinstance(content, str) else None
            parts = () if isinstance(content, str) else tuple(self._content(item) for item in content)
            return [Message.user(ToolResult(id, names.get(id, "?"), value, content=parts))]  # type: ignore[arg-type]
        parts = tuple(self._content(item) for item in texts(content or "") if item.get("text") != "")
        if message["role"] != "assistant":
            return [Message("user", parts)]
        calls = []
        for call in message.get("tool_calls") or []:
            names[call["id"]] = call["function"]["name"]
            calls.append(ToolCall(call["id"], call["function"]["name"], raw_arguments=call["function"]["arguments"],
                                  provider_data=raw_data(origin, rest_of(call, ("id", "type", "function", "index")))))  # fmt: skip
        extra = rest_of(message, ("role", "content", "tool_calls", "annotations", "refusal"))
        reasoning = [Opaque("reasoning", ProviderData(origin, Raw(msgspec.json.encode(extra))))] if extra else []
        return [Message("model", (*reasoning, *parts, *calls), ProviderData(origin))]

    def _content(self, item: Json) -> Any:
        match item:
            case {"type": "text", "text": text}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": url}}:
                return self._blob(url, "image/*")
            case {"type": "file", "file": {"file_data": url, **rest}}:
                return replace(self._blob(url, "application/pdf"), name=rest.get("filename"))
            case {"type": "document_url", "document_url": url}:
                return self._blob(url, "application/pdf")
        return Opaque(item["type"], ProviderData(self.preset.name, Raw(msgspec.json.encode(item))))

    def _blob(self, url: str, media_type: str) -> Blob:
        head, _, data = url.partition(";base64,")
        return Blob(head.removeprefix("data:"), base64=data) if data else Blob(media_type, url=url)

    def encode(self, request: ModelRequest, recorded: Json) -> Json:
        return json.loads(encode_chat(request, self.preset, stream=bool(recorded.get("stream"))))  # type: ignore[no-any-return]

    def normalized(self, request: Json) -> Json:
        request = without_nulls(request)
        if not request.get("stream"):
            request.pop("stream", None)
        request.pop("stream_options", None)  # whether the usage is wanted
        if request.get("tool_choice") == "auto":  # the default
            del request["tool_choice"]
        if request.get("tool_choice") == "any":  # Mistral's older word
            request["tool_choice"] = "required"
        if isinstance(request.get("tool_choice"), dict):
            request["tool_choice"].setdefault("type", "function")
        for tool in request.get("tools") or []:
            tool.setdefault("type", "function")
            if tool["function"].get("description") == "":
                del tool["function"]["description"]
        messages: list[Json] = []
        for message in request["messages"]:
            message["role"] = "system" if message["role"] == "developer" else message["role"]
            for name in ("annotations", "refusal"):
                message.pop(name, None)
            if isinstance(message.get("content"), str | list):
                message["content"] = texts(message["content"])
                if not [item for item in message["content"] if item.get("text") != ""] and message.get("tool_calls"):
                    del message["content"]
            for call in message.get("tool_calls") or []:
                call.pop("index", None)
            if message["role"] == "system" and messages and messages[-1]["role"] == "system":
                messages[-1]["content"][0]["text"] += "\n\n" + message["content"][0]["text"]
            else:
                messages.append(message)
        return {**request, "messages": messages}

    def decode(self, body: bytes) -> ModelResponse:
        return decode_chat(body, self.preset)

    def decoder(self) -> Decoder:
        return ChatDecoder(self.preset, partial(openai.event_error, "it"))

    def error(self, status: int, body: bytes) -> ProviderError:
        return openai.parse_error("it", RecordedStatus(status), body)  # type: ignore[arg-type]


def _ttl(marks: dict[str, Json]) -> float | None:
    ttl = next(iter(marks.values())).get("ttl")
    return None if ttl is None else 3600.0 if ttl == "1h" else 300.0


def texts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def without_nulls(value: Any) -> Any:
    """A copy of a value without properties that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def wire_of(provider: str) -> Wire | None:
    """The wire of a row, by what its `provider` says."""
    if provider in ("anthropic", "vertex-anthropic"):
        return AnthropicWire()
    if provider == "openai-chat" or provider.startswith("openai-compat"):
        return ChatWire(provider)
    return None
