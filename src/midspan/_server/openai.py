"""OpenAI's API: /v1/chat/completions and /v1/models."""

import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from midspan._loop.result import RunResult, error_of
from midspan._schema.output_type import OutputType
from midspan._server import documents
from midspan._server.config import OWNER
from midspan._server.http import (
    DONE,
    EventStreamResponse,
    HttpError,
    encode_json,
    frame,
    invalid,
    json_response,
    read_json,
    run_error,
)
from midspan._server.openai_messages import (
    client_call_id,
    client_tool,
    conversation,
    handed_call,
    handed_calls,
    output_schema,
    run_settings,
    system_prompt,
    tool_choice,
)
from midspan._server.service import ModelChoice, Service, StartedRun, StoredRun
from midspan._types.events import ErrorInfo, RunEnd, TextDelta, ThoughtDelta, ToolEnd, TurnEnd, TurnStart
from midspan._types.exchange import FinishReason, Usage
from midspan._types.messages import History
from midspan._types.run_state import RunState
from midspan.errors import ConfigError, CredentialsError, MidspanError, OutputError

_FINISH_REASONS = {
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT_FULL: "length",
    FinishReason.BLOCKED: "content_filter",
    FinishReason.REFUSED: "content_filter",
}


class OpenAIApi:
    """The endpoints that programs for OpenAI use."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: Request) -> Response | ASGIApp:
        service = self._service
        body = await read_json(request, documents.CompletionRequest, service.config)
        run = await self._start(request.scope[OWNER], body)
        if body.stream:
            on_disconnect = partial(service.cancel_abandoned, run) if body.cancel_on_disconnect else None
            return EventStreamResponse(self._chunks(run, body), service.config, on_disconnect=on_disconnect)
        await service.wait(run, request.receive, cancel_on_disconnect=body.cancel_on_disconnect)
        try:
            result = run.result.result()
        except OutputError as error:
            # As with OpenAI, the client gets what the model wrote and checks it itself.
            summary = (await service.info(run.owner, run.id)).summary
            message = documents.CompletionMessage(content=_last_text(error))
            return json_response(_completion(run, message, "stop", summary.usage))
        except Exception as error:  # noqa: BLE001 - reported to the client
            raise _failure(error, run.id) from None
        return json_response(_completion_of(run, result))

    async def _start(self, owner: str, body: documents.CompletionRequest) -> StartedRun:
        service = self._service
        choice = service.choose(None, body.model)

        async def find_run(run_id: str) -> StoredRun:
            return await service.stored(owner, run_id)

        messages = await conversation(body.messages, find_run)
        declared = [client_tool(tool) for tool in body.tools or ()]
        client_names = [tool.name for tool in declared]
        if len({*client_names}) < len(client_names):
            raise invalid("two tools of the request have the same name")
        server_names = {spec.name for spec in await service.source.list_tools()}
        for name in client_names:
            if name in server_names:
                raise invalid(f"the server has a tool {name!r} of its own; give that of the request another name")
        system = system_prompt(service.agent.system, body.messages)
        options: dict[str, Any] = {} if system == service.agent.system else {"system": system}
        if declared:
            options["tools"] = [*service.builtins, service.source, *declared]
        if settings := run_settings(body):
            options["settings"] = settings
        if wanted := tool_choice(body, {*client_names, *server_names}):
            options["tool_choice"] = wanted
        if schema := output_schema(body):
            options["output"] = _checked_schema(schema)
        return await service.start(owner, None, choice=choice, messages=messages, deltas=bool(body.stream), **options)

    async def _chunks(self, run: StartedRun, body: documents.CompletionRequest) -> AsyncGenerator[bytes, None]:
        chunks = _Chunks(run, is_typed=output_schema(body) is not None)
        events = self._service.runs.subscribe(run.id)
        try:
            yield chunks.first()
            async for _, event in events:
                for chunk in chunks.of(event):
                    yield chunk
        except MidspanError as error:
            yield frame(_failure(error, run.id).openai_document())
        finally:
            await events.aclose()
        if body.stream_options is not None and body.stream_options.include_usage:
            yield chunks.usage()
        yield DONE

    async def models(self, _: Request) -> Response:
        return json_response(documents.OpenAIModelList(data=[_model(choice) for choice in self._service.models]))

    async def model(self, request: Request) -> Response:
        return json_response(_model(self._service.choose(None, request.path_params["model"])))


def _model(choice: ModelChoice) -> documents.OpenAIModel:
    return documents.OpenAIModel(id=choice.id, owned_by=choice.provider)


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        OutputType(schema)
    except ConfigError as error:
        raise invalid(f"response_format cannot be used: {error}") from None
    return schema


def _completion_of(run: StartedRun, result: RunResult[Any]) -> documents.Completion:
    calls = _tool_calls(run.id, handed_calls(result.tool_calls))
    if calls:
        message = documents.CompletionMessage(content=result.response.message.text or None, tool_calls=calls)
        return _completion(run, message, "tool_calls", result.usage)
    finish_reason = _FINISH_REASONS.get(result.finish_reason, "stop")
    return _completion(run, documents.CompletionMessage(content=result.text), finish_reason, result.usage)


def _completion(
    run: StartedRun, message: documents.CompletionMessage, finish_reason: str, usage: Usage
) -> documents.Completion:
    return documents.Completion(
        id=f"chatcmpl-{run.id}",
        created=int(time.time()),
        model=run.choice.id,
        choices=[documents.CompletionChoice(message=message, finish_reason=finish_reason)],
        usage=documents.OpenAIUsage.of(usage),
    )


def _last_text(error: MidspanError) -> str:
    """Return what the model wrote last in a run that ended with an error."""
    messages: Any = error.transcript or ()
    return next((message.text for message in reversed([*messages]) if message.role == "model"), "")


def _tool_calls(run_id: str, calls: list[tuple[int, str, dict[str, Any]]]) -> list[documents.OpenAIToolCall]:
    return [
        documents.OpenAIToolCall(
            id=client_call_id(run_id, index),
            function=documents.OpenAIFunctionCall(name, encode_json(arguments).decode()),
        )
        for index, name, arguments in calls
    ]


class _Chunks:
    """The chunks of a streamed completion, made from the events of a run."""

    def __init__(self, run: StartedRun, *, is_typed: bool) -> None:
        """`is_typed`: the answer is JSON, so only the last text counts, which is known at the end."""
        self._run = run
        self._head = {
            "id": f"chatcmpl-{run.id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": run.choice.id,
        }
        self._is_typed = is_typed
        self._turn_text = ""
        """Of the turn, after that of the turns before it in which the model paused."""
        self._paused_text = ""
        self._has_text = False
        self._last_text = ""
        self._finish_reason = FinishReason.END
        self._handed: list[tuple[int, str, dict[str, Any]]] = []
        self._usage: documents.OpenAIUsage | None = None

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: Any) -> list[bytes]:
        match event:
            case TurnStart():
                self._turn_text = self._paused_text
            case TextDelta(text=text) if not self._is_typed:
                return [self._text(text)]
            case ThoughtDelta(text=text):
                return [self._chunk({"reasoning_content": text})]
            case TurnEnd(message=message, finish_reason=reason):
                self._finish_reason, self._last_text = reason, message.text
                if message.calls:
                    self._paused_text = ""
                elif reason is FinishReason.CONTINUES:
                    self._paused_text = self._turn_text
            case ToolEnd(result=result, index=index):
                if (handed := handed_call(result)) is not None:
                    self._handed.append((index, *handed))
            case RunEnd(error=ErrorInfo(kind="OutputError")):
                return self._end(replace(event, text=self._last_text))
            case RunEnd(error=None):
                return self._end(event)
            case RunEnd(error=info) if info is not None:
                error = error_of(info, event.limit, RunState.of(History()))
                return [frame(_failure(error, self._run.id).openai_document())]
        return []

    def _text(self, text: str) -> bytes:
        separator = "\n\n" if self._has_text and not self._turn_text else ""
        self._turn_text += text
        self._has_text = True
        return self._chunk({"content": separator + text})

    def _end(self, event: RunEnd) -> list[bytes]:
        self._usage = documents.OpenAIUsage.of(event.usage)
        chunks = []
        if self._handed:
            calls = _tool_calls(self._run.id, sorted(self._handed, key=lambda call: call[0]))
            numbered = [{"index": at, **msgspec.to_builtins(call)} for at, call in enumerate(calls)]
            return [self._chunk({"tool_calls": numbered}), self._chunk({}, "tool_calls")]
        if event.text and event.text != self._turn_text:  # the text of a limit, of a tool, or typed output
            chunks.append(self._text(event.text.removeprefix(self._turn_text)))
        return [*chunks, self._chunk({}, _FINISH_REASONS.get(self._finish_reason, "stop"))]

    def usage(self) -> bytes:
        return frame({**self._head, "choices": [], "usage": self._usage})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return frame({**self._head, "choices": [choice]})


def _failure(error: BaseException, run_id: str) -> HttpError:
    """Return the response for a run that failed. Options of the request may be impossible with this model."""
    failure = run_error(error, run_id)
    if isinstance(error, ConfigError) and not isinstance(error, CredentialsError):
        return invalid("the model does not support an option of this request; the log of the server says which")
    return failure
