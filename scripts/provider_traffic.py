"""The wires of other providers than Gemini, as `replay_traffic` checks them.

A `Wire` reads a recorded request as our own values, which are encoded again and must give the recorded request: what
the wire adds is kept in `provider_data` by part, never as the whole request. `normalized` removes the freedom that an
API gives its clients, such as a string instead of a list with one text.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from row_files import without_surrogates

from midspan._types.exchange import CachePolicy, ModelRequest, ModelResponse, Output, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ProviderError
from midspan.providers.anthropic import decode as anthropic
from midspan.providers.anthropic.encode import request_body as encode_anthropic
from midspan.providers.anthropic.profile import capabilities_of as claude_capabilities
from midspan.providers.errors import parse_error
from midspan.providers.interactions.decode import StreamDecoder as InteractionDecoder
from midspan.providers.interactions.decode import decode_response as decode_interaction
from midspan.providers.interactions.encode import request_body as encode_interaction
from midspan.providers.openai.decode import OPENAI_CODES
from midspan.providers.openai.decode import StreamDecoder as ChatDecoder
from midspan.providers.openai.decode import decode_response as decode_chat
from midspan.providers.openai.encode import encode_effort
from midspan.providers.openai.encode import request_body as encode_chat
from midspan.providers.openai.profile import PRESETS
from midspan.providers.openai_responses.decode import StreamDecoder as ResponsesDecoder
from midspan.providers.openai_responses.decode import decode_response as decode_responses
from midspan.providers.openai_responses.decode import reasoning_text
from midspan.providers.openai_responses.encode import ORIGIN as RESPONSES
from midspan.providers.openai_responses.encode import request_body as encode_responses

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
    messages_field: str
    """The field of a request with the messages."""

    def canonical(self, request: Json) -> Json:
        """A recorded request without what Midspan leaves out, and with what it adds, where both mean the same."""

    def read(self, request: Json) -> ModelRequest: ...

    def encode(self, request: ModelRequest, recorded: Json) -> Json: ...

    def normalized(self, request: Json) -> Json: ...

    def decode(self, body: bytes) -> ModelResponse: ...

    def decoder(self) -> Decoder: ...

    def error(self, status: int, body: bytes) -> ProviderError: ...

    def has_message(self, document: Json) -> bool:
        """Whether a response that is not streamed has a message."""

    def is_end(self, event: Json) -> bool:
        """Whether an event says why the response ends."""

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

    messages_field = "messages"
    origin = "anthropic"

    def canonical(self, request: Json) -> Json:
        request = without_empty(without_nulls(request), ("tools", "stop_sequences", "system"))
        if str(request.get("anthropic_version")).startswith("bedrock"):  # its URL has the model, and we have no client
            del request["anthropic_version"]
        if "anthropic_version" not in request:
            request.setdefault("model", _IN_URL)
        for tool in request.get("tools") or []:
            if "input_schema" in tool:
                tool["input_schema"] = {"type": "object", **(tool["input_schema"] or {"properties": {}})}
        request.setdefault("max_tokens", 16_000)  # the API demands it, gateways do not
        messages = []
        for message in request["messages"]:
            # The API rejects blank texts and empty messages.
            content = [block for block in texts(message.get("content") or "") if not _is_blank(block)]
            if content:
                messages.append({**message, "content": content})
        return {**request, "messages": messages}

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
            if mark := system[-1].get("cache_control"):
                marks["system"] = mark
            system = "".join(block["text"] for block in system)
        listed = request.get("tools") or []
        tools = [self._tool(tool, is_last=tool is listed[-1]) for tool in listed]
        if listed and listed[-1].get("cache_control"):
            marks["tools"] = listed[-1]["cache_control"]
        if request.get("cache_control"):
            marks["messages"] = request["cache_control"]
        extra = rest_of(request, known)
        if not all(mark == next(iter(marks.values())) and _is_plain_mark(mark) for mark in marks.values()):
            # One policy cannot express them, so they are passed as they are.
            extra |= {name: request[name] for name in ("system", "tools", "cache_control") if name in request}
            marks = {}
        choice = request.get("tool_choice")
        if choice is not None and not (listed and self._is_plain_choice(choice)):
            extra["tool_choice"], choice = choice, None
        if not is_plain_system:
            extra["system"], system = system, None
        thinking = request.get("thinking") or {}
        if thinking and not self._is_plain_thinking(thinking, request):
            extra["thinking"], thinking = thinking, {}
        output_config = dict(request.get("output_config") or {})
        output = output_config.pop("format", None) or request.get("output_format")
        if output is not None and rest_of(output, ("type", "schema")):
            extra["output_config"], output = {**output_config, "format": output}, None
        elif output_config:
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
            self._choice(choice),
            settings,
            None if output is None else Output(output["schema"]),
            None if not marks else CachePolicy(ttl_seconds=_ttl(marks), parts=tuple(marks)),  # type: ignore[arg-type]
        )
        return ModelRequest(config, History(messages))

    def _is_plain_thinking(self, thinking: Json, request: Json) -> bool:
        """Whether Midspan writes it so: a budget only within limits, and each form only for models that have it."""
        capabilities = claude_capabilities(request.get("model", _IN_URL))
        match thinking:
            case {"type": "enabled", "budget_tokens": int(budget), **rest} if not rest:
                return capabilities.budget and 1_024 <= budget < request["max_tokens"]
            case {"type": "adaptive", **rest} if not rest:
                return capabilities.adaptive
        return thinking == {"type": "disabled"}

    def _thinking(self, thinking: Json) -> int | None:
        return {"enabled": thinking.get("budget_tokens"), "adaptive": -1, "disabled": 0}.get(thinking.get("type", ""))

    def _is_plain_choice(self, choice: Json) -> bool:
        names = ("name",) if choice["type"] == "tool" else ()
        return not rest_of(choice, ("type", "disable_parallel_tool_use", *names))

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
        if rest_of(message, ("role", "content")):
            role = "user" if message["role"] == "user" else "model"
            return Message(role, parts, raw_data(self.origin, {**message, "content": content}))  # type: ignore[arg-type]
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
                content = block.get("content") or ""
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
        source = block.get("source")
        if not isinstance(source, dict):
            return False
        known = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}.get(str(source.get("type")))
        is_known = known is not None and not rest_of(source, ("type", *known))
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

    def has_message(self, document: Json) -> bool:
        return isinstance(document.get("content"), list)

    def is_end(self, event: Json) -> bool:
        return event.get("type") == "message_delta" and bool((event.get("delta") or {}).get("stop_reason"))

    def sent(self, row: Json) -> Any:
        is_whole = isinstance(row["response"], dict)
        blocks = row["response"]["content"] if is_whole else self._joined(events_of(row))
        return [
            {**block, "input": block.get("input") or {}} if block.get("type") == "tool_use" else block
            for block in without_nulls(blocks)
            if not _is_blank(block)
        ]

    def _joined(self, events: list[Json]) -> list[Json]:
        blocks: dict[int, Json] = {}
        for event in events:
            if event.get("type") == "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "pieces": ""}
            elif event.get("type") == "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"] or {}
                for name in ("text", "thinking", "signature"):
                    if delta.get(name) is not None:
                        block[name] = (block.get(name) or "") + delta[name]
                if delta.get("citation"):
                    block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                block["pieces"] += delta.get("partial_json") or ""
        for block in blocks.values():
            if pieces := block.pop("pieces"):
                arguments = arguments_in(pieces)
                block["input"] = arguments if isinstance(arguments, dict) else {}
        return list(blocks.values())

    def sent_back(self, request: Json) -> Any:
        answers = [message for message in request["messages"] if message["role"] == "assistant"]
        return answers[0]["content"] if answers else []  # an empty one is left out

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

    decode = staticmethod(anthropic.decode_response)

    def decoder(self) -> Decoder:
        return anthropic.StreamDecoder()

    def error(self, status: int, body: bytes) -> ProviderError:
        return anthropic.parse_error(RecordedStatus(status), body)  # type: ignore[arg-type]


class ChatWire:
    """OpenAI's Chat Completions API, and compatible ones."""

    messages_field = "messages"

    def __init__(self, provider: str = "openai-chat") -> None:
        host = provider.partition(":")[2]
        names = {"openrouter.ai": "openrouter", "mistral.ai": "mistral", "groq.com": "groq", "ollama.com": "ollama",
                 "deepseek.com": "deepseek", "x.ai": "xai", "together.xyz": "together"}  # fmt: skip
        self.preset = PRESETS[names.get(host, "openai" if not host else "vllm")]

    def canonical(self, request: Json) -> Json:
        request = without_empty(without_nulls(request), ("tools", "stop"))
        request.setdefault("model", _IN_URL)
        if isinstance(request.get("stop"), str):
            request["stop"] = [request["stop"]]
        messages = []
        unanswered: list[str] = []
        for message in request["messages"]:
            content = message.get("content") or ""
            if isinstance(content, list):
                content = [self._canonical_item(item, message["role"]) for item in content if item.get("text") != ""]
                if message["role"] != "user" and all(item.keys() == {"type", "text"} for item in content):
                    content = "".join(item["text"] for item in content)
            if message["role"] == "tool":  # clients add its name, or whether it is an error
                id = message.get("tool_call_id") or (unanswered.pop(0) if unanswered else "?")
                messages.append({"role": "tool", "tool_call_id": id, "content": content})
                continue
            calls = [
                self._canonical_call(call, f"call_{len(messages)}_{at}")
                for at, call in enumerate(message.get("tool_calls") or [])
            ]
            unanswered = [call["id"] for call in calls]
            said = without_empty({**message, "content": content, "tool_calls": calls}, ("content", "tool_calls"))
            if said.keys() - {"role"}:
                messages.append(said)
        return {**request, "messages": messages}

    def _canonical_call(self, call: Json, id: str) -> Json:
        """A call with an id, which some services do not demand, and without what says nothing about it."""
        function = call.get("function")
        if not isinstance(function, dict):
            return call
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {}, separators=(",", ":"))
        return {"id": id, "type": "function", **call, "function": {"name": function["name"], "arguments": arguments}}

    def _canonical_item(self, item: Json, role: str) -> Json:
        """An item, in a result without what results cannot say, such as the detail of an image."""
        match item:
            case {"type": "text"} if role == "tool":
                return {"type": "text", "text": item.get("text") or ""}
            case {"type": "image_url", "image_url": {"url": url}} if role == "tool":
                return {"type": "image_url", "image_url": {"url": url}}
        return item

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
        seed = self.preset.seed_field
        known = ["model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
                 "temperature", "top_p", "stop", seed, self.preset.max_tokens_field, "reasoning_effort",
                 "presence_penalty", "frequency_penalty"]  # fmt: skip
        output = request.get("response_format")
        schema = (output or {}).get("json_schema") or {}
        is_plain = (
            self.preset.json_schema
            and isinstance(schema.get("schema"), dict)
            and schema.keys() == {"name", "schema"}
            and schema.get("name") == schema["schema"].get("title")
        )
        if is_plain:
            known.append("response_format")
        choice, parallel = request.get("tool_choice"), request.get("parallel_tool_calls")
        if not request.get("tools"):
            known.remove("parallel_tool_calls")
            parallel = None
        if choice is not None and not (request.get("tools") and self._is_plain_choice(choice)):
            known.remove("tool_choice")
            choice = None
        effort = request.get("reasoning_effort")
        if effort not in ("low", "medium", "high") and effort != encode_effort(
            ModelSettings(thinking=effort), request["model"]
        ):
            known.remove("reasoning_effort")
            effort = None
        settings = ModelSettings(
            max_tokens=request.get(self.preset.max_tokens_field),
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            stop=tuple(request.get("stop") or ()),
            seed=request.get(seed),
            presence_penalty=request.get("presence_penalty"),
            frequency_penalty=request.get("frequency_penalty"),
            thinking=effort,
            extra=rest_of(request, known),
        )
        config = RequestConfig(
            request["model"],
            "\n\n".join(system) or None,
            tuple(self._tool(tool) for tool in request.get("tools") or []),
            self._choice(choice, parallel),
            settings,
            Output(schema["schema"]) if is_plain else None,
        )
        return ModelRequest(config, History(messages))

    def _is_plain_choice(self, choice: Any) -> bool:
        if isinstance(choice, dict):
            function = choice.get("function")
            return (
                isinstance(function, dict) and function.keys() == {"name"} and not rest_of(choice, ("type", "function"))
            )
        return choice in ("auto", "none", "required", "any")

    def _choice(self, choice: Any, parallel: bool | None) -> ToolChoice | None:
        if choice is None:
            return None if parallel is None else ToolChoice("auto", (), parallel)
        if isinstance(choice, dict):
            return ToolChoice("required", (choice["function"]["name"],), parallel)
        return ToolChoice("required" if choice in ("required", "any") else choice, (), parallel)

    def _tool(self, tool: Json) -> AnyTool:
        function = tool.get("function")
        known = ("name", "description", "parameters", "strict")
        if not isinstance(function, dict) or rest_of(function, known) or rest_of(tool, ("type", "function")):
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
        is_plain = not isinstance(content, list) or all(isinstance(part, Text) for part in parts)
        if not is_plain or not all(isinstance(call.get("function"), dict) for call in message.get("tool_calls") or []):
            return [Message("model", parts, raw_data(origin, message))]  # reasoning in the content, or custom tools
        calls = []
        for call in message.get("tool_calls") or []:
            names[call["id"]] = call["function"]["name"]
            data = raw_data(origin, rest_of(call, ("id", "type", "function", "index")))
            function = call["function"]
            calls.append(
                ToolCall(call["id"], function["name"], raw_arguments=function["arguments"], provider_data=data)
            )
        refusal = ("refusal",) if parts or calls else ()
        extra = rest_of(message, ("role", "content", "tool_calls", "annotations", *refusal))
        reasoning = [Opaque("reasoning", ProviderData(origin, Raw(msgspec.json.encode(extra))))] if extra else []
        return [Message("model", (*reasoning, *parts, *calls), ProviderData(origin))]

    def _content(self, item: Json) -> Any:
        match item:
            case {"type": "text", "text": text, **rest} if not rest:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": url, **detail}, **rest} if not rest and (
                detail in ({}, {"detail": "auto"})
            ):
                return self._blob(url, "image/*")
            case {"type": "file", "file": {"file_data": url, "filename": name, **more}, **rest} if not rest | more:
                return replace(self._blob(url, "application/pdf"), name=name)
            case {"type": "document_url", "document_url": url, **rest} if not rest and self.preset.document_urls:
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
                    image = item.get("image_url")
                    if isinstance(image, dict) and image.get("detail") == "auto":
                        del image["detail"]  # the default
                if not [item for item in message["content"] if item.get("text") != ""] and message.get("tool_calls"):
                    del message["content"]
            for call in message.get("tool_calls") or []:
                call.pop("index", None)
            if message["role"] == "system" and messages and messages[-1]["role"] == "system":
                messages[-1]["content"][0]["text"] += "\n\n" + message["content"][0]["text"]
            else:
                messages.append(message)
        return {**request, "messages": messages}

    def has_message(self, document: Json) -> bool:
        choices = document.get("choices")
        return isinstance(choices, list) and bool(choices) and isinstance(choices[0].get("message"), dict)

    def is_end(self, event: Json) -> bool:
        return any(choice.get("finish_reason") for choice in event.get("choices") or [])

    def sent(self, row: Json) -> Any:
        if isinstance(row["response"], dict):
            return self._sent(row["response"]["choices"][0]["message"])
        content, calls = "", list[Json]()
        for event in events_of(row):
            for choice in event.get("choices") or []:
                if choice.get("index"):
                    continue  # another answer to the same question
                delta = choice.get("delta") or choice.get("message") or {}
                content += "".join(item.get("text") or "" for item in texts(delta.get("content") or ""))
                for call in delta.get("tool_calls") or []:
                    self._add_call(calls, call)
        return self._sent({"content": content, "tool_calls": calls})

    def _add_call(self, calls: list[Json], delta: Json) -> None:
        """Add a piece of a call: the first one has the id, or where a service gives none, the name."""
        function = delta.get("function") or {}
        known = [call for call in calls if call["id"] == delta.get("id")] if delta.get("id") else calls[-1:]
        if not known or (not delta.get("id") and function.get("name")):
            known = [{"id": delta.get("id"), "function": {"name": "", "arguments": ""}}]
            calls += known
        arguments = function.get("arguments") or ""
        known[-1]["function"]["name"] = known[-1]["function"]["name"] or function.get("name") or ""
        known[-1]["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _sent(self, message: Json) -> Json:
        calls = []
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            arguments = function.get("arguments")
            calls.append(
                {
                    "id": call.get("id"),
                    "name": function.get("name"),
                    "arguments": "{}" if arguments is None else arguments,
                }
            )
        return {"content": message.get("content") or "", "calls": calls}

    def sent_back(self, request: Json) -> Any:
        answers = [message for message in request["messages"] if message["role"] == "assistant"]
        return self._sent(answers[0] if answers else {})  # an empty one is left out

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
                (call["id"], call["function"]["name"], arguments_in(call["function"]["arguments"]))
                for call in message.get("tool_calls") or []
                if isinstance(call.get("function"), dict)
            ]
        return [step for step in steps if step[-1] != ""]

    def decode(self, body: bytes) -> ModelResponse:
        return decode_chat(body, self.preset)

    def decoder(self) -> Decoder:
        return ChatDecoder(self.preset)

    def error(self, status: int, body: bytes) -> ProviderError:
        return parse_error("it", OPENAI_CODES, RecordedStatus(status), body)  # type: ignore[arg-type]


class ResponsesWire:
    """OpenAI's Responses API."""

    messages_field = "input"

    def canonical(self, request: Json) -> Json:
        request = without_empty(without_nulls(request), ("tools", "instructions"))
        request.setdefault("model", _IN_URL)
        for tool in request.get("tools") or []:
            if tool.get("parameters") == {}:
                del tool["parameters"]
        items = request["input"]
        if isinstance(items, list):
            request["input"] = [
                self._canonical_item(item)
                for item in items
                if item.get("role") not in ("user", "assistant") or item.get("content")  # others say nothing
            ]
        return request

    def _canonical_item(self, item: Json) -> Json:
        if item.get("type") == "function_call_output" and "caller" not in item:  # clients add its id and status
            output = item.get("output")
            output = [self._canonical_result(part) for part in output] if isinstance(output, list) else output or ""
            return {"type": item["type"], "call_id": item["call_id"], "output": output}
        if isinstance(item.get("content"), list):
            return {**item, "content": [self._canonical_content(part) for part in item["content"]]}
        return item

    def _canonical_result(self, content: Json) -> Json:
        """A content without what a result of a tool cannot say, such as the detail of an image."""
        known = {
            "input_text": ("text",),
            "input_image": ("image_url", "file_id"),
            "input_file": ("file_id", "file_url", "file_data", "filename"),
        }
        names = ("type", *known.get(content["type"], tuple(content)))
        return self._canonical_content({name: content[name] for name in names if name in content})

    def _canonical_content(self, content: Json) -> Json:
        """A content with the defaults of fields that the API demands, or used to."""
        if content.get("type") == "input_image":
            return {"detail": "auto", **content}
        return {"filename": "file", **content} if "file_data" in content else content

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
        choice, parallel = request.get("tool_choice"), request.get("parallel_tool_calls")
        if not request.get("tools"):
            known.remove("parallel_tool_calls")
            parallel = None
        if choice is not None and not (request.get("tools") and self._is_plain_choice(choice)):
            known.remove("tool_choice")
            choice = None
        text = request.get("text") or {}
        output = text.get("format") or {}
        is_plain = (
            output.get("type") == "json_schema"
            and text.keys() == {"format"}
            and output.keys() == {"type", "name", "schema"}
            and isinstance(output.get("schema"), dict)
            and output.get("name") == output["schema"].get("title")
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
            self._choice(choice, parallel),
            settings,
            Output(output["schema"]) if is_plain else None,
        )
        return ModelRequest(config, History(messages))

    def _choice(self, choice: Any, parallel: bool | None) -> ToolChoice | None:
        if choice is None:
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

    def _is_plain_choice(self, choice: Any) -> bool:
        match choice:
            case {"type": "allowed_tools", "mode": _, "tools": tools, **rest} if not rest:
                return all(tool.keys() == {"type", "name"} and tool["type"] == "function" for tool in tools)
            case {"type": "function", "name": _, **rest}:
                return not rest
        return choice in ("auto", "none", "required")

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
            case {"type": "input_image", "detail": "auto", "image_url": url, **rest} if not rest:
                head, _, data = url.partition(";base64,")
                return Blob(head.removeprefix("data:"), base64=data) if data else Blob("image/*", url=url)
            case {"type": "input_image", "detail": "auto", "file_id": id, **rest} if not rest:
                return Blob("image/*", url=id)
            case {"type": "input_file", "file_url": url, **rest} if not rest:
                return Blob("application/pdf", url=url)
            case {"type": "input_file", "file_id": id, **rest} if not rest:
                return Blob("application/pdf", url=id)
            case {"type": "input_file", "file_data": url, "filename": name, **rest} if not rest:
                head, _, data = url.partition(";base64,")
                return Blob(head.removeprefix("data:"), base64=data, name=name)
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
            if item.get("role") == "assistant" and item.get("content") == [{"type": "input_text", "text": ""}]:
                continue  # a message that says nothing
            normal.append(item)
        return {**request, "instructions": "\n\n".join(instructions), "input": normal}

    def has_message(self, document: Json) -> bool:
        return isinstance(document.get("output"), list)

    def is_end(self, event: Json) -> bool:
        return event.get("type") in ("response.completed", "response.incomplete") and self.has_message(
            event.get("response") or {}
        )

    def sent(self, row: Json) -> Any:
        is_whole = isinstance(row["response"], dict)
        responses = [row["response"]] if is_whole else [e["response"] for e in events_of(row) if self.is_end(e)]
        items = without_nulls(responses[-1]["output"])
        return [] if all(item.get("type") == "reasoning" for item in items) else items  # the API rejects it alone

    def sent_back(self, request: Json) -> Any:
        return request["input"][1:-1]

    def outline(self, request: Json) -> list[Any]:
        steps: list[Any] = []
        for item in request["input"]:
            match item:
                case {"type": "function_call"}:
                    steps.append((item["call_id"], item["name"], arguments_in(item["arguments"])))
                case {"type": "function_call_output"}:
                    steps.append((item["call_id"], item["output"]))
                case {"role": role, "content": content} if role != "assistant":
                    steps.append((role, "".join(part.get("text", "") for part in content)))
        return [step for step in steps if step[-1] != ""]

    decode = staticmethod(decode_responses)

    def decoder(self) -> Decoder:
        return ResponsesDecoder()

    def error(self, status: int, body: bytes) -> ProviderError:
        return parse_error("it", OPENAI_CODES, RecordedStatus(status), body)  # type: ignore[arg-type]


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


def _is_plain_mark(mark: Json) -> bool:
    return (
        not rest_of(mark, ("type", "ttl")) and mark.get("type") == "ephemeral" and mark.get("ttl") in (None, "5m", "1h")
    )


def _is_blank(block: Json) -> bool:
    return block.get("type") == "text" and not (block.get("text") or "").strip()


_IN_URL = "named-in-the-url"
"""The model of a request whose body has none."""


def without_empty(value: Json, names: Iterable[str]) -> Json:
    """A copy of an object without those of these fields that are empty."""
    return {name: item for name, item in value.items() if item not in ("", [], {}) or name not in set(names)}


def arguments_in(text: str) -> Any:
    """The arguments of a call; text that is not JSON, because the model wrote it so or was cut, stays text."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def normalize_function(function: Json) -> None:
    """Remove what says nothing: an empty description, and parameters of a function that has none."""
    if function.get("description") == "":
        del function["description"]
    if function.get("parameters") in ({}, {"type": "object", "properties": {}}):
        del function["parameters"]


def events_of(row: Json) -> list[Any]:
    """The events of a recorded stream, cut out in the simplest way there is; text where one is not JSON."""
    if isinstance(row["response"], list):
        return row["response"]
    events = []
    for block in re.split(r"\n\n+", re.sub(r"\r\n?", "\n", row["response"].removeprefix("\ufeff"))):
        text = "\n".join(line.removeprefix("data:") for line in block.split("\n") if line.startswith("data:")).strip()
        if text and text != "[DONE]":
            try:
                events.append(without_surrogates(json.loads(text)))
            except ValueError:
                events.append(text)
    if events and isinstance(events[-1], str) and events[-1].startswith("{"):
        events.pop()  # it was cut
    return events


def texts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def without_nulls(value: Any) -> Any:
    """A copy of a value without properties that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def wire_of(row: Json) -> Wire | None:
    """The wire of a row, by its URL, or if that says nothing by its `provider`; None if it is not of these APIs."""
    provider, request = str(row["provider"]), row["request_json"]
    path = str(row["url"]).partition("?")[0].rstrip("/")
    if path.endswith("/chat/completions"):
        return ChatWire(provider)
    if path.endswith("/responses"):
        return ResponsesWire()
    if path.endswith("/messages") or (path.endswith("awPredict") and "/anthropic/" in path):
        return AnthropicWire()
    if path:
        return None
    if provider in ("anthropic", "vertex-anthropic"):
        return AnthropicWire()
    if provider == "openai-responses" or (provider.startswith("openai") and "input" in (request or {})):
        return ResponsesWire()
    return ChatWire(provider) if provider.startswith("openai") else None
