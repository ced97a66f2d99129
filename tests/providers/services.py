"""Loopback services that speak the wires of other providers, strictly.

Each validates every request with the official SDK's own parameter types, extra keys forbidden, and with the rules that
the real service enforces: results follow their calls, ids match, blank texts are rejected. Each answers with the next
turn of a script, as JSON or as server-sent events.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from tests.gemini.recorder import Recorder

Json = dict[str, Any]


class Turn(NamedTuple):
    """What a model answers: words, thoughts and calls."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name, and arguments as JSON text, which may be invalid."""
    thought: str = ""
    is_cut: bool = False
    """The answer reached its maximum of tokens."""


Script = Callable[[Json], Turn]


class Refused(Exception):
    """The request is not what the service accepts."""


class Service(Recorder):
    """A stand-in; subclasses know the wire."""

    package: str
    """The SDK whose types the requests must satisfy."""

    def __init__(self, *script: Turn | Script) -> None:
        super().__init__()
        adapter_of(self.form(), self.package)  # it takes seconds, and must not delay the first response
        self._script = list(script)
        self.refused: list[str] = []
        self.required: dict[str, str] = {}
        """Headers that each request must have."""

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        request = self.last
        if request.method == "GET":
            return 200, json.dumps(self.models()).encode(), {}
        for name, value in self.required.items():
            if request.headers.get(name) != value:
                return self.error(401, "authentication_error", "invalid key")
        if request.body.get("model") == "unknown":
            return self.error(404, "not_found_error", "model: unknown")
        if self.answers:
            return super().next()
        try:
            self.check(request.body)
        except Refused as refused:
            self.refused.append(str(refused))
            return self.error(400, "invalid_request_error", str(refused))
        turn = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        turn = turn(request.body) if callable(turn) else turn
        if not request.body.get("stream"):
            return 200, json.dumps(self.whole(turn)).encode(), {}
        return 200, b"".join(self.events(turn)), {"content-type": "text/event-stream"}

    def models(self) -> Json:
        return {"data": [{"id": "model-1"}, {"id": "model-2"}], "has_more": False}

    def error(self, status: int, kind: str, message: str) -> tuple[int, bytes, dict[str, str]]:
        return status, json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode(), {}

    def form(self) -> Any:
        """The type of requests in the official SDK."""
        raise NotImplementedError

    def check(self, request: Json) -> None:
        """Raise Refused for a request that the real service would reject."""
        try:
            _consume(adapter_of(self.form(), self.package).validate_python(request))
        except ValidationError as error:
            raise Refused(f"{self.package}: {error}") from error

    def whole(self, turn: Turn) -> Json:
        raise NotImplementedError

    def events(self, turn: Turn) -> Iterator[bytes]:
        raise NotImplementedError


def event(document: Json, name: str | None = None) -> bytes:
    line = b"" if name is None else b"event: %b\n" % name.encode()
    return line + b"data: %b\n\n" % json.dumps(document).encode()


def pieces(text: str, size: int = 9) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# The parameter types of the official SDKs

_adapters: dict[Any, TypeAdapter[Any]] = {}


def adapter_of(form: Any, package: str) -> TypeAdapter[Any]:
    """The validator for a type of an SDK; keys that the type does not name are errors."""
    if form not in _adapters:
        for name, module in list(sys.modules.items()):
            for item in list(vars(module).values()) if name.startswith(package) else []:
                if is_typeddict(item) and "__pydantic_config__" not in vars(item):
                    item.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        _adapters[form] = TypeAdapter(form)
    return _adapters[form]


def _consume(value: Any) -> None:
    """Pydantic validates iterables only when they are read."""
    if isinstance(value, Mapping):
        for item in value.values():
            _consume(item)
    elif not isinstance(value, str | bytes | int | float | bool | None):
        for item in value:
            _consume(item)


# Anthropic


class AnthropicService(Service):
    """The Messages API."""

    package = "anthropic.types"

    def form(self) -> Any:
        from anthropic.types.message_create_params import MessageCreateParams

        return MessageCreateParams

    def check(self, request: Json) -> None:
        super().check(request)
        open_calls: list[str] = []
        last_role = ""
        for message in request["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if message["role"] == last_role:
                raise Refused("roles must alternate")
            last_role = message["role"]
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(results) != sorted(open_calls):
                raise Refused(f"tool_use ids {open_calls} were answered by {results}")
            if [block["type"] == "tool_result" for block in blocks] != [True] * len(results) + [False] * (
                len(blocks) - len(results)
            ):
                raise Refused("tool_result blocks must come first")
            if any(block["type"] == "text" and not block["text"].strip() for block in blocks) or not blocks:
                raise Refused("text content blocks must be non-empty")
            if any(block["type"] == "thinking" and block["signature"] != "c2ln" for block in blocks):
                raise Refused("invalid signature in thinking block")
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if any(not re.fullmatch("[a-zA-Z0-9_-]+", id) for id in open_calls):
                raise Refused("tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if last_role != "user" or open_calls:
            raise Refused("the conversation must end with a user message")

    def _blocks(self, turn: Turn) -> list[Json]:
        blocks: list[Json] = []
        if turn.thought:
            blocks.append({"type": "thinking", "thinking": turn.thought, "signature": "c2ln"})
        if turn.text:
            blocks.append({"type": "text", "text": turn.text})
        return blocks

    def _reason(self, turn: Turn) -> str:
        return "max_tokens" if turn.is_cut else "tool_use" if turn.calls else "end_turn"

    def whole(self, turn: Turn) -> Json:
        calls = [
            {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments or "{}")}
            for id, name, arguments in turn.calls
        ]
        usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 0}
        content = [*self._blocks(turn), *calls]
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "usage": usage,
                "stop_sequence": None, "stop_reason": self._reason(turn), "content": content}  # fmt: skip

    def events(self, turn: Turn) -> Iterator[bytes]:
        whole = {**self.whole(turn._replace(calls=())), "content": [], "stop_reason": None}
        yield event({"type": "message_start", "message": whole}, "message_start")
        index = 0
        for block in self._blocks(turn):
            kind = block["type"]
            empty = {"type": kind, kind: ""} if kind == "text" else {"type": kind, kind: "", "signature": ""}
            deltas: list[Json] = [{"type": f"{kind}_delta", kind: piece} for piece in pieces(block[kind])]
            if kind == "thinking":
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            yield from self._block(index, empty, deltas)
            index += 1
        for id, name, arguments in turn.calls:
            empty = {"type": "tool_use", "id": id, "name": name, "input": {}}
            yield from self._block(
                index,
                empty,
                [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments))],
            )
            index += 1
        delta = {"stop_reason": self._reason(turn), "stop_sequence": None}
        yield event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")

    def _block(self, index: int, start: Json, deltas: list[Json]) -> Iterator[bytes]:
        yield event({"type": "content_block_start", "index": index, "content_block": start}, "content_block_start")
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield event({"type": "content_block_stop", "index": index}, "content_block_stop")


# Chat Completions


class ChatService(Service):
    """The Chat Completions API. `extra` are fields of messages and calls that this service knows beyond OpenAI's."""

    def __init__(self, *script: Turn | Script, extra: tuple[str, ...] = ()) -> None:
        super().__init__(*script)
        self._extra = extra

    package = "openai.types"

    def form(self) -> Any:
        from openai.types.chat.completion_create_params import CompletionCreateParams

        return CompletionCreateParams

    def check(self, request: Json) -> None:
        super().check(self._without_extra(request))
        open_calls: list[str] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    raise Refused(f"messages with role 'tool' must answer a call: {message['tool_call_id']}")
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                raise Refused(f"tool_call_ids did not have response messages: {open_calls}")
            open_calls = [call["id"] for call in message.get("tool_calls") or []]
            if not self._extra and any(len(id) > 40 for id in open_calls):  # a rule of OpenAI itself
                raise Refused("tool_calls[].id: string too long")
        if open_calls:
            raise Refused(f"tool_call_ids did not have response messages: {open_calls}")

    def _without_extra(self, request: Json) -> Json:
        messages = []
        for message in request["messages"]:
            plain = {name: value for name, value in message.items() if name not in self._extra}
            if "tool_calls" in plain:
                plain["tool_calls"] = [
                    {name: value for name, value in call.items() if name not in self._extra}
                    for call in plain["tool_calls"]
                ]
            messages.append(plain)
        return {**request, "messages": messages}

    def _reason(self, turn: Turn) -> str:
        return "length" if turn.is_cut else "tool_calls" if turn.calls else "stop"

    def whole(self, turn: Turn) -> Json:
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in turn.calls
        ]
        message: Json = {"role": "assistant", "content": turn.text or None, "refusal": None, "annotations": []}
        message |= {"tool_calls": calls} if calls else {}
        message |= {"reasoning_content": turn.thought} if turn.thought else {}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(turn), "logprobs": None}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice],
                "usage": self._usage()}  # fmt: skip

    def _usage(self) -> Json:
        return {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17,
                "prompt_tokens_details": {"cached_tokens": 2}}  # fmt: skip

    def events(self, turn: Turn) -> Iterator[bytes]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in pieces(turn.thought)]
        deltas += [{"content": piece} for piece in pieces(turn.text)]
        for index, (id, name, arguments) in enumerate(turn.calls):
            start = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [start]})
            for piece in pieces(arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        for delta in deltas:
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        yield self._chunk([{"index": 0, "delta": {}, "finish_reason": self._reason(turn)}])
        yield self._chunk([], usage=self._usage())
        yield b"data: [DONE]\n\n"

    def _chunk(self, choices: list[Json], **more: Any) -> bytes:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
        return event({**head, "choices": choices, **more})

    def error(self, status: int, kind: str, message: str) -> tuple[int, bytes, dict[str, str]]:
        codes = {401: "invalid_api_key", 404: "model_not_found"}
        error = {"message": message, "type": kind, "param": None, "code": codes.get(status)}
        return status, json.dumps({"error": error}).encode(), {}


# Responses


class ResponsesService(Service):
    """The Responses API."""

    package = "openai.types"

    def form(self) -> Any:
        from openai.types.responses.response_create_params import ResponseCreateParams

        return ResponseCreateParams

    def check(self, request: Json) -> None:
        super().check(request)
        calls: set[str] = set()
        results: set[str] = set()
        for item in [] if isinstance(request["input"], str) else request["input"]:
            if item.get("type") == "function_call":
                calls.add(item["call_id"])
            elif item.get("type") == "function_call_output":
                if item["call_id"] not in calls:
                    raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.")
                results.add(item["call_id"])
            elif item.get("type") == "reasoning" and item.get("encrypted_content") != "c2ln":
                raise Refused("the encrypted content could not be verified")
        if calls - results:
            raise Refused(f"No tool output found for function call {calls - results}.")

    def _items(self, turn: Turn) -> list[Json]:
        items: list[Json] = []
        if turn.thought:
            summary = [{"type": "summary_text", "text": turn.thought}]
            items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2ln"})
        if turn.text:
            content = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
            message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            items.append({**message, "content": content})
        for id, name, arguments in turn.calls:
            items.append(
                {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments,
                 "status": "completed"}
            )  # fmt: skip
        return items

    def whole(self, turn: Turn) -> Json:
        usage = {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 5,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 17}  # fmt: skip
        details = {"reason": "max_output_tokens"} if turn.is_cut else None
        return {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt", "output": self._items(turn),
                "status": "incomplete" if turn.is_cut else "completed", "incomplete_details": details, "usage": usage,
                "error": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip

    def events(self, turn: Turn) -> Iterator[bytes]:
        whole = self.whole(turn)
        yield self._event("response.created", response={**whole, "output": [], "status": "in_progress"})
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index}
            empty: Json = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
            empty = {"summary": []} if item["type"] == "reasoning" else empty
            yield self._event("response.output_item.added", item={**item, **empty}, **place)
            place["item_id"] = item["id"]
            if item["type"] == "message":
                part = {"content_index": 0, **place}
                yield self._event("response.content_part.added", part={**item["content"][0], "text": ""}, **part)
                for piece in pieces(item["content"][0]["text"]):
                    yield self._event("response.output_text.delta", delta=piece, logprobs=[], **part)
                yield self._event("response.output_text.done", text=item["content"][0]["text"], logprobs=[], **part)
                yield self._event("response.content_part.done", part=item["content"][0], **part)
            elif item["type"] == "reasoning":
                part = {"summary_index": 0, **place}
                summary = item["summary"][0]
                yield self._event("response.reasoning_summary_part.added", part={**summary, "text": ""}, **part)
                for piece in pieces(summary["text"]):
                    yield self._event("response.reasoning_summary_text.delta", delta=piece, **part)
                yield self._event("response.reasoning_summary_part.done", part=summary, **part)
            else:
                for piece in pieces(item["arguments"]):
                    yield self._event("response.function_call_arguments.delta", delta=piece, **place)
                yield self._event("response.function_call_arguments.done", arguments=item["arguments"],
                                  name=item["name"], **place)  # fmt: skip
            yield self._event("response.output_item.done", output_index=index, item=item)
        end = "response.incomplete" if turn.is_cut else "response.completed"
        yield self._event(end, response=whole)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": 0, **fields}, kind)

    error = ChatService.error


# Interactions


class InteractionsService(Service):
    """Gemini's Interactions API."""

    package = "google.genai._gaos"

    def form(self) -> Any:
        from google.genai._gaos.types.interactions.createmodelinteraction import CreateModelInteractionParam

        return CreateModelInteractionParam

    def check(self, request: Json) -> None:
        super().check(request)
        calls: dict[str, str] = {}
        results: set[str] = set()
        for step in request["input"]:
            if step["type"] == "function_call":
                calls[step["id"]] = step["name"]
            elif step["type"] == "function_result":
                if calls.get(step["call_id"]) != step["name"]:
                    raise Refused(f"no call {step['call_id']} of {step['name']}")
                results.add(step["call_id"])
            elif step["type"] == "thought" and step.get("signature") != "c2ln":
                raise Refused("invalid signature")
        if calls.keys() - results:
            raise Refused("calls without a result")

    def _steps(self, turn: Turn) -> list[Json]:
        steps: list[Json] = []
        if turn.thought:
            summary = [{"type": "text", "text": turn.thought}]
            steps.append({"type": "thought", "summary": summary, "signature": "c2ln"})
        if turn.text:
            steps.append({"type": "model_output", "content": [{"type": "text", "text": turn.text}]})
        for id, name, arguments in turn.calls:
            steps.append({"type": "function_call", "id": id, "name": name, "arguments": json.loads(arguments or "{}")})
        return steps

    def whole(self, turn: Turn) -> Json:
        status = "incomplete" if turn.is_cut else "requires_action" if turn.calls else "completed"
        usage = {"total_input_tokens": 12, "total_output_tokens": 5, "total_cached_tokens": 2, "total_tokens": 17}
        return {"id": "v1_1", "object": "interaction", "model": "gemini", "status": status,
                "steps": self._steps(turn), "usage": usage}  # fmt: skip

    def events(self, turn: Turn) -> Iterator[bytes]:
        whole = self.whole(turn._replace(calls=()))
        head = {"id": "v1_1", "object": "interaction", "model": "gemini"}
        yield event({"event_type": "interaction.created", "interaction": {**head, "status": "in_progress"}})
        index = 0
        for step in whole["steps"]:
            yield event({"event_type": "step.start", "index": index, "step": {"type": step["type"]}})
            if step["type"] == "thought":
                for piece in pieces(turn.thought):
                    delta = {"type": "thought_summary", "content": {"type": "text", "text": piece}}
                    yield event({"event_type": "step.delta", "index": index, "delta": delta})
                delta = {"type": "thought_signature", "signature": "c2ln"}
                yield event({"event_type": "step.delta", "index": index, "delta": delta})
            else:
                for piece in pieces(turn.text):
                    yield event({"event_type": "step.delta", "index": index, "delta": {"type": "text", "text": piece}})
            yield event({"event_type": "step.stop", "index": index})
            index += 1
        for id, name, arguments in turn.calls:
            step = {"type": "function_call", "id": id, "name": name, "arguments": {}}
            yield event({"event_type": "step.start", "index": index, "step": step})
            for piece in pieces(arguments):
                delta = {"type": "arguments_delta", "arguments": piece}
                yield event({"event_type": "step.delta", "index": index, "delta": delta})
            yield event({"event_type": "step.stop", "index": index})
            index += 1
        status = self.whole(turn._replace(calls=tuple((id, name, "{}") for id, name, _ in turn.calls)))
        last = {**head, "status": status["status"], "usage": status["usage"]}
        yield event({"event_type": "interaction.completed", "interaction": last})

    def error(self, status: int, kind: str, message: str) -> tuple[int, bytes, dict[str, str]]:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND"}
        if status == 404:
            message = "models/unknown is not found for API version v1beta"
        error = {"code": status, "message": message, "status": names.get(status, kind)}
        return status, json.dumps({"error": error}).encode(), {}
