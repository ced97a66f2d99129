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
from midspan.providers import errors as openai
from midspan.providers.anthropic import client as anthropic
from midspan.providers.anthropic.decode import StreamDecoder as AnthropicDecoder
from midspan.providers.anthropic.decode import decode_response as decode_anthropic
from midspan.providers.anthropic.encode import request_body as encode_anthropic
from midspan.providers.anthropic.profile import capabilities_of as claude_capabilities
from midspan.providers.interactions.decode import StreamDecoder as InteractionDecoder
from midspan.providers.interactions.decode import decode_response as decode_interaction
from midspan.providers.interactions.encode import request_body as encode_interaction
from midspan.providers.openai.decode import StreamDecoder as ChatDecoder
from midspan.providers.openai.decode import decode_response as decode_chat
from midspan.providers.openai.encode import request_body as encode_chat
from midspan.providers.openai.profile import PRESETS
from midspan.providers.openai_responses.decode import StreamDecoder as ResponsesDecoder
from midspan.providers.openai_responses.decode import decode_response as decode_responses
from midspan.providers.openai_responses.decode import reasoning_text
from midspan.providers.openai_responses.encode import request_body as encode_responses
from midspan.providers.openai_responses.profile import ORIGIN as RESPONSES

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

    def sent(self, row: Json) -> Any:
        """The message of a response, as it goes back; None if the row does not show it."""

    def sent_back(self, request: Json) -> Any:
        """The second of three messages of a request."""

    def outline(self, request: Json) -> list[Any]:
        """The user's words, the calls and the results of a normalized request.

        Clients drop or rewrite what the model says beside a call.
        """


def raw_data(origin: str, extra: Json) -> ProviderData | None:
    return ProviderData(origin, Raw(msgspec.json.encode(extra))) if extra else None


def rest_of(fields: Json, known: Iterable[str]) -> Json:
    return {name: value for name, value in fields.items() if name not in set(known) and value is not None}


class AnthropicWire:
    """Anthropic's Messages API, also by Vertex."""

    origin = "anthropic"

    def read(self, request: Json) -> ModelRequest:
        known = ["model", "messages", "system", "tools", "tool_choice", "max_tokens", "stream", "thinking",
                 "stop_sequences", "anthropic_version", "cache_control", "output_format", "output_config"]  # fmt: skip
        names: dict[str, str] = {}
        messages = [self._message(message, names) for message in request["messages"]]
        system = request.get("system")
        marks: dict[str, Json] = {}
        is_plain_system = not isinstance(system, list) or (
            len(system) == 1 and not rest_of(system[0], ("type", "text", "cache_control"))
        )
        if isinstance(system, list) and is_plain_system:
            if system and system[-1].get("cache_control"):
                marks["system"] = system[-1]["cache_control"]
            system = "".join(block["text"] for block in system)
        listed = request.get("tools") or []
        tools = [self._tool(tool, is_last=tool is listed[-1]) for tool in listed]
        if request.get("tools") and request["tools"][-1].get("cache_control"):
            marks["tools"] = request["tools"][-1]["cache_control"]
        if request.get("cache_control"):
            marks["messages"] = request["cache_control"]
        extra = rest_of(request, known)
        if not is_plain_system:
            extra["system"], system = system, None
        thinking = request.get("thinking") or {}
        if thinking.get("type") not in (None, "enabled", "adaptive", "disabled") or rest_of(
            thinking, ("type", "budget_tokens")
        ):
            extra["thinking"], thinking = thinking, {}
        output_config = dict(request.get("output_config") or {})
        output = output_config.pop("format", None) or request.get("output_format")
        if output_config:
            extra["output_config"] = {**output_config, **({"format": output} if output else {})}
        settings = ModelSettings(
            max_tokens=request.get("max_tokens"),
            stop=tuple(request.get("stop_sequences") or ()),
            thinking=self._thinking(thinking),
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
            return ToolChoice("required", (choice["name"],), parallel)
        return ToolChoice(choice["type"], (), parallel)

    def _tool(self, tool: Json, *, is_last: bool) -> AnyTool:
        known = ("type", "name", "description", "input_schema", "strict", "cache_control")
        is_marked = bool(tool.get("cache_control")) and not is_last
        if tool.get("type") not in (None, "custom") or rest_of(tool, known) or is_marked:
            kept = ("type",) if is_marked else ("type", "cache_control")
            return BuiltinTool(tool.get("type") or "custom", rest_of(tool, kept))
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
                if not all(self._is_plain_content(part) for part in listed):
                    return Opaque("tool_result", ProviderData(self.origin, Raw(msgspec.json.encode(block))))
                parts = tuple(self._content(part) for part in listed)
                data = extra("tool_use_id", "content", "is_error")
                value = content if isinstance(content, str) else None
                is_error = bool(block.get("is_error"))
                return ToolResult(id, names.get(id, "?"), value, is_error, parts, provider_data=data)
            case {"type": "image" | "document"} if self._is_plain_content(block):
                return self._content(block)
        return Opaque(block["type"], ProviderData(self.origin, Raw(msgspec.json.encode(block))))

    def _is_plain_content(self, block: Json) -> bool:
        if block["type"] == "text":
            return not rest_of(block, ("type", "text"))
        source = block.get("source") or {}
        is_known = source.get("type") in ("base64", "url", "file")
        return block["type"] in ("image", "document") and is_known and not rest_of(block, ("type", "source"))

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

    def sent(self, row: Json) -> Any:
        is_whole = row["response_kind"] == "json"
        blocks = row["response"]["content"] if is_whole else self._joined(events_of(row))
        return [block for block in without_nulls(blocks) if block["type"] != "text" or block["text"].strip()]

    def _joined(self, events: list[Json]) -> list[Json]:
        blocks: list[Json] = []
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "pieces": ""})
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        blocks[-1][name] = blocks[-1].get(name, "") + delta[name]
                blocks[-1]["pieces"] += delta.get("partial_json", "")
        for block in blocks:
            if pieces := block.pop("pieces"):
                block["input"] = json.loads(pieces)
        return blocks

    def sent_back(self, request: Json) -> Any:
        return request["messages"][1]["content"]

    def outline(self, request: Json) -> list[Any]:
        steps: list[Any] = []
        for message in request["messages"]:
            for block in message["content"]:
                match block:
                    case {"type": "text", "text": text} if message["role"] != "assistant":
                        steps.append((message["role"], text.strip()))
                    case {"type": "tool_use"}:
                        steps.append((block["name"], block["id"], block["input"]))
                    case {"type": "tool_result"}:
                        steps.append((block["tool_use_id"], block["content"]))
        return [step for step in steps if step[-1] != ""]

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
                      for item in texts(message["content"]) or [] if item["type"] != "text"]  # fmt: skip
        self.preset = replace(self.preset, media_in_results=bool(in_results))
        system: list[str] = []
        messages: list[Message] = []
        names: dict[str, str] = {}
        for message in request["messages"]:
            is_text = isinstance(message.get("content"), str) and not rest_of(message, ("role", "content"))
            if message["role"] in ("system", "developer") and not messages and is_text:
                system.append(message["content"])
            else:
                messages += self._message(message, names)
        known = ["model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
                 "temperature", "top_p", "stop", "seed", self.preset.max_tokens_field, "reasoning_effort",
                 "presence_penalty", "frequency_penalty"]  # fmt: skip
        output = request.get("response_format")
        schema = (output or {}).get("json_schema") or {}
        is_plain = not rest_of(schema, ("name", "schema")) and schema.get("name") == schema.get("schema", {}).get(
            "title"
        )
        if output is None or (is_plain and schema):
            known.append("response_format")
        choice = request.get("tool_choice")
        if isinstance(choice, dict) and "name" not in (choice.get("function") or {}):
            known.remove("tool_choice")
            choice = None
        effort = request.get("reasoning_effort")
        if effort not in (None, "minimal", "low", "medium", "high"):
            known.remove("reasoning_effort")
            effort = None
        stop = request.get("stop") or ()
        settings = ModelSettings(
            max_tokens=request.get(self.preset.max_tokens_field),
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            seed=request.get("seed"),
            thinking=effort,
            extra=rest_of(request, known),
        )
        config = RequestConfig(
            request["model"],
            "\n\n".join(system) or None,
            tuple(self._tool(tool) for tool in request.get("tools") or []),
            self._choice(choice, request.get("parallel_tool_calls")),
            settings,
            Output(schema["schema"]) if is_plain and schema else None,
        )
        return ModelRequest(config, History(messages))

    def _choice(self, choice: Any, parallel: bool | None) -> ToolChoice | None:
        if choice is None:
            return None if parallel is None else ToolChoice("auto", (), parallel)
        if isinstance(choice, dict):
            return ToolChoice("required", (choice["function"]["name"],), parallel)
        return ToolChoice("required" if choice in ("required", "any") else choice, (), parallel)

    def _tool(self, tool: Json) -> AnyTool:
        function = tool.get("function")
        if not isinstance(function, dict) or rest_of(function, ("name", "description", "parameters", "strict")):
            return BuiltinTool(tool.get("type", "function"), rest_of(tool, ("type",)))
        return ToolSpec(function["name"], function.get("description") or "", function.get("parameters"),
                        strict=function.get("strict"))  # fmt: skip

    def _message(self, message: Json, names: dict[str, str]) -> list[Message]:
        content = message.get("content")
        origin = self.preset.name
        if message["role"] == "tool":
            id = message["tool_call_id"]
            value = content if isinstance(content, str) else None
            parts = () if isinstance(content, str) else tuple(self._content(item) for item in content or [])
            return [Message.user(ToolResult(id, names.get(id, "?"), value, content=parts))]
        parts = tuple(self._content(item) for item in texts(content or "") if item.get("text") != "")
        if message["role"] != "user" and message["role"] != "assistant":
            return [Message("user", parts or (Text(""),), raw_data(origin, message))]
        if message["role"] == "user":
            return [
                Message("user", parts, raw_data(origin, message) if rest_of(message, ("role", "content")) else None)
            ]
        calls = []
        for call in message.get("tool_calls") or []:
            names[call["id"]] = call["function"]["name"]
            data = raw_data(origin, rest_of(call, ("id", "type", "function", "index")))
            function = call["function"]
            calls.append(
                ToolCall(call["id"], function["name"], raw_arguments=function["arguments"], provider_data=data)
            )
        extra = rest_of(message, ("role", "content", "tool_calls", "annotations", "refusal"))
        reasoning = [Opaque("reasoning", ProviderData(origin, Raw(msgspec.json.encode(extra))))] if extra else []
        return [Message("model", (*reasoning, *parts, *calls), ProviderData(origin))]

    def _content(self, item: Json) -> Any:
        match item:
            case {"type": "text", "text": text}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": url, **rest}} if rest.get("detail") in (None, "auto"):
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

    def normalized(self, request: Json) -> Json:  # noqa: C901 - a list of the liberties of one API
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
            normalize_function(tool.get("function") or {})
        messages: list[Json] = []
        for message in request["messages"]:
            message["role"] = "system" if message["role"] == "developer" else message["role"]
            for name in ("annotations", "refusal"):
                message.pop(name, None)
            if isinstance(message.get("content"), str | list):
                message["content"] = texts(message["content"])
                for item in message["content"]:
                    if item.get("type") == "image_url" and item["image_url"].get("detail") == "auto":
                        del item["image_url"]["detail"]  # the default
                if not [item for item in message["content"] if item.get("text") != ""] and message.get("tool_calls"):
                    del message["content"]
            for call in message.get("tool_calls") or []:
                call.pop("index", None)
            if message["role"] == "system" and messages and messages[-1]["role"] == "system":
                messages[-1]["content"][0]["text"] += "\n\n" + message["content"][0]["text"]
            else:
                messages.append(message)
        return {**request, "messages": messages}

    def sent(self, row: Json) -> Any:
        if row["response_kind"] == "json":
            return self._sent(row["response"]["choices"][0]["message"])
        message: Json = {"role": "assistant", "content": "", "tool_calls": []}
        for event in events_of(row):
            for choice in event["choices"]:
                delta = choice.get("delta") or {}
                message["content"] += delta.get("content") or ""
                for call in delta.get("tool_calls") or []:
                    if call.get("id"):
                        message["tool_calls"].append(
                            {"id": call["id"], "function": {**call["function"], "arguments": ""}}
                        )
                    message["tool_calls"][-1]["function"]["arguments"] += call["function"].get("arguments") or ""
        return self._sent(message)

    def _sent(self, message: Json) -> Json:
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"].get("arguments", "{}")}
            for call in message.get("tool_calls") or []
        ]
        return {"content": message.get("content") or "", "calls": calls}

    def sent_back(self, request: Json) -> Any:
        return self._sent(request["messages"][-2])

    def outline(self, request: Json) -> list[Any]:
        steps: list[Any] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                steps.append((message["tool_call_id"], message["content"]))
                continue
            content = message.get("content") or []
            if message["role"] != "assistant":
                steps.append((message["role"], "".join(item.get("text", "") for item in content).strip()))
            steps += [
                (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
                for call in message.get("tool_calls") or []
            ]
        return [step for step in steps if step[-1] != ""]

    def decode(self, body: bytes) -> ModelResponse:
        return decode_chat(body, self.preset)

    def decoder(self) -> Decoder:
        return ChatDecoder(self.preset, partial(openai.event_error, "it", openai.OPENAI_CODES))

    def error(self, status: int, body: bytes) -> ProviderError:
        return openai.parse_error("it", openai.OPENAI_CODES, RecordedStatus(status), body)  # type: ignore[arg-type]


class ResponsesWire:
    """OpenAI's Responses API."""

    def read(self, request: Json) -> ModelRequest:
        items = request["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        system = [request["instructions"]] if request.get("instructions") else []
        messages: list[Message] = []
        names: dict[str, str] = {}
        for item in items:
            if item.get("role") in ("system", "developer") and not messages and isinstance(item.get("content"), str):
                system.append(item["content"])
            else:
                messages.append(self._message(item, names))
        known = ["model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream",
                 "max_output_tokens", "temperature", "top_p"]  # fmt: skip
        choice = request.get("tool_choice")
        if isinstance(choice, dict) and not self._is_plain_choice(choice):
            known.remove("tool_choice")
        text = request.get("text") or {}
        output = text.get("format") or {}
        is_plain = (
            output.get("type") == "json_schema"
            and not rest_of(text, ("format",))
            and not rest_of(output, ("type", "name", "schema"))
            and output["name"] == output["schema"].get("title")
        )
        settings = ModelSettings(
            max_tokens=request.get("max_output_tokens"),
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            extra=rest_of(request, [*known, "text"] if is_plain else known),
        )
        config = RequestConfig(
            request["model"],
            "\n\n".join(system) or None,
            tuple(self._tool(tool) for tool in request.get("tools") or []),
            self._choice(request.get("tool_choice"), request.get("parallel_tool_calls")),
            settings,
            Output(output["schema"]) if is_plain else None,
        )
        return ModelRequest(config, History(messages))

    def _choice(self, choice: Any, parallel: bool | None) -> ToolChoice | None:
        if choice is None or (isinstance(choice, dict) and not self._is_plain_choice(choice)):
            return None if parallel is None else ToolChoice("auto", (), parallel)
        if isinstance(choice, str):
            return replace(ToolChoice.of(choice), parallel=parallel)
        if choice["type"] == "allowed_tools":
            names = tuple(tool["name"] for tool in choice["tools"])
            return ToolChoice("required" if choice["mode"] == "required" else "auto", names, parallel)
        return ToolChoice("required", (choice["name"],), parallel)

    def _tool(self, tool: Json) -> AnyTool:
        if tool["type"] != "function" or rest_of(tool, ("type", "name", "description", "parameters", "strict")):
            return BuiltinTool(tool["type"], rest_of(tool, ("type",)))
        return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters"), strict=tool.get("strict"))

    def _is_plain_choice(self, choice: Json) -> bool:
        if choice["type"] == "allowed_tools":
            return all(tool.get("type") == "function" for tool in choice["tools"])
        return bool(choice["type"] == "function")

    def _message(self, item: Json, names: dict[str, str]) -> Message:
        whole = ProviderData(RESPONSES, Raw(msgspec.json.encode(item)))
        is_plain = not rest_of(item, ("type", "role", "content"))
        match item:
            case {"type": "function_call_output", "call_id": id, "output": output} if "caller" not in item:
                if isinstance(output, str):
                    return Message.user(ToolResult(id, names.get(id, "?"), output))
                parts = tuple(self._content(content) for content in output)
                return Message.user(ToolResult(id, names.get(id, "?"), content=parts))
            case {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}:
                names[id] = name
                data = whole if rest_of(item, ("type", "call_id", "name", "arguments")) else None
                return Message("model", (ToolCall(id, name, raw_arguments=arguments, provider_data=data),))
            case {"role": "user", "content": content} if is_plain:
                parts = tuple(self._content(part) for part in texts(content))
                return Message("user", parts)
            case {"role": "assistant", "content": str(text)} if is_plain:
                return Message("model", (Text(text),))
            case {"type": "message", "role": "assistant", "content": [{"text": text}]}:
                return Message("model", (Text(text, whole),))
            case {"type": "reasoning"}:
                return Message("model", (Thought(reasoning_text(item), whole),))
        is_input = item.get("role") in ("developer", "system", "user") or "output" in str(item.get("type"))
        return Message("user" if is_input else "model", (Opaque(str(item.get("type")), whole),))

    def _content(self, item: Json) -> Any:
        match item:
            case {"type": "text" | "input_text", "text": text} if not rest_of(item, ("type", "text")):
                return Text(text)
            case {"type": "input_image", "image_url": url}:
                head, _, data = url.partition(";base64,")
                return Blob(head.removeprefix("data:"), base64=data) if data else Blob("image/*", url=url)
            case {"type": "input_image", "file_id": id}:
                return Blob("image/*", url=id)
            case {"type": "input_file", "file_url": url}:
                return Blob("application/pdf", url=url)
            case {"type": "input_file", "file_id": id}:
                return Blob("application/pdf", url=id)
            case {"type": "input_file", "file_data": url}:
                head, _, data = url.partition(";base64,")
                return Blob(head.removeprefix("data:"), base64=data, name=item.get("filename"))
        return Opaque(item["type"], ProviderData(RESPONSES, Raw(msgspec.json.encode(item))))

    def encode(self, request: ModelRequest, recorded: Json) -> Json:
        return json.loads(encode_responses(request, stream=bool(recorded.get("stream"))))  # type: ignore[no-any-return]

    def normalized(self, request: Json) -> Json:  # noqa: C901 - a list of the liberties of one API
        request = without_nulls(request)
        if not request.get("stream"):
            request.pop("stream", None)
        for name in ("store", "include"):  # where the reasoning is kept: on the server, or encrypted in the request
            request.pop(name, None)
        if request.get("tool_choice") == "auto":  # the default
            del request["tool_choice"]
        items = request["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        instructions = [request.pop("instructions")] if request.get("instructions") else []
        output = (request.get("text") or {}).get("format")
        if output and not output.get("strict"):
            output.pop("strict", None)
        for tool in request.get("tools") or []:
            normalize_function(tool)
            if tool["type"] == "function" and not tool.get("strict"):
                tool.pop("strict", None)
        normal: list[Json] = []
        for item in items:
            if item.get("role") in ("system", "developer") and not normal and isinstance(item.get("content"), str):
                instructions.append(item["content"])
                continue
            if item.get("type") == "message" and not rest_of(item, ("type", "role", "content")):
                item = rest_of(item, ("type",))  # noqa: PLW2901 - what may be left out
            if isinstance(item.get("content"), str):
                item["content"] = [{"type": "input_text", "text": item["content"]}]
            if item.get("role") == "assistant" and item["content"] == [{"type": "input_text", "text": ""}]:
                continue  # a message that says nothing
            normal.append(item)
        return {**request, "instructions": "\n\n".join(instructions), "input": normal}

    def sent(self, row: Json) -> Any:
        response = row["response"] if row["response_kind"] == "json" else events_of(row)[-1].get("response", {})
        if "output" not in response:
            return None
        items = without_nulls(response["output"])
        return [] if all(item["type"] == "reasoning" for item in items) else items  # the API rejects it alone

    def sent_back(self, request: Json) -> Any:
        return request["input"][1:-1]

    def outline(self, request: Json) -> list[Any]:
        steps: list[Any] = []
        for item in request["input"]:
            match item:
                case {"type": "function_call"}:
                    steps.append((item["call_id"], item["name"], json.loads(item["arguments"] or "{}")))
                case {"type": "function_call_output"}:
                    steps.append((item["call_id"], item["output"]))
                case {"role": role, "content": content} if role != "assistant":
                    steps.append((role, "".join(part.get("text", "") for part in content)))
        return [step for step in steps if step[-1] != ""]

    decode = staticmethod(decode_responses)

    def decoder(self) -> Decoder:
        return ResponsesDecoder()

    def error(self, status: int, body: bytes) -> ProviderError:
        return openai.parse_error("it", openai.OPENAI_CODES, RecordedStatus(status), body)  # type: ignore[arg-type]


class InteractionsWire:
    """Responses of Gemini's Interactions API. The recordings have no requests."""

    decode = staticmethod(decode_interaction)

    def decoder(self) -> Decoder:
        return InteractionDecoder()

    def steps_sent_back(self, message: Message) -> Any:
        """The steps of a message of the model, in the next request."""
        history = History([Message.user("?"), message, Message.user("?")])
        return json.loads(encode_interaction(ModelRequest(RequestConfig("m"), history), stream=False))["input"][1:-1]


def _ttl(marks: dict[str, Json]) -> float | None:
    ttl = next(iter(marks.values())).get("ttl")
    return None if ttl is None else 3600.0 if ttl == "1h" else 300.0


def normalize_function(function: Json) -> None:
    """Remove what says nothing: an empty description, and parameters of a function that has none."""
    if function.get("description") == "":
        del function["description"]
    if function.get("parameters") == {"type": "object", "properties": {}}:
        del function["parameters"]


def events_of(row: Json) -> list[Json]:
    """The events of a recorded stream, cut out in the simplest way there is."""
    if isinstance(row["response"], list):
        return row["response"]
    lines = [line.removeprefix("data:").strip() for line in row["response"].splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def texts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def without_nulls(value: Any) -> Any:
    """A copy of a value without properties that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def wire_of(provider: str, request: Any = None) -> Wire | None:
    """The wire of a row, by what its `provider` says; compatible services have two APIs."""
    if provider.startswith("openai-compat") and isinstance(request, dict) and "input" in request:
        return ResponsesWire()
    if provider in ("anthropic", "vertex-anthropic"):
        return AnthropicWire()
    if provider == "openai-chat" or provider.startswith("openai-compat"):
        return ChatWire(provider)
    if provider == "openai-responses":
        return ResponsesWire()
    return None
