"""OpenTelemetry spans of runs, by the semantic conventions for generative AI.

A traced run is a run whose provider and tool source are wrapped, so other runs have no overhead.
"""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from midspan._loop.run import Run
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, ToolCall, ToolResult
from midspan._version import VERSION
from midspan.errors import ConfigError
from midspan.providers.provider import Provider, WrapperProvider, ensure_aclose
from midspan.tools.source import ToolSource
from midspan.tools.wrap import WrapperSource

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

_PROVIDER_NAMES = {"Gemini": "gcp.gemini", "Azure OpenAI": "azure.ai.openai", "xAI": "x_ai", "Mistral": "mistral_ai"}
"""The names of services in the conventions. Other services have their own name in lower case."""


class Telemetry:
    """Records the runs of an agent with OpenTelemetry: `Agent(…, telemetry=Telemetry())`.

    Needs the extra `otel`. Without `tracer_provider`, spans go to the global tracer provider.
    """

    def __init__(
        self,
        tracer_provider: "TracerProvider | None" = None,
        *,
        agent_name: str | None = None,
        include_content: bool = False,
    ) -> None:
        """`agent_name` is part of the names of spans. `include_content` also records prompts, answers, arguments and
        results, which may be confidential.
        """
        try:
            from opentelemetry import propagate, trace  # noqa: F401 - propagate for `trace_headers`
        except ImportError as error:
            raise ConfigError("Telemetry needs OpenTelemetry; run pip install 'midspan[otel]'") from error
        self.agent_name = agent_name
        self.include_content = include_content
        self.trace, self.tracer = trace, trace.get_tracer("midspan", VERSION, tracer_provider)

    @contextmanager
    def span(
        self, operation: str, subject: str | None, parent: "Span | None", attributes: dict[str, Any]
    ) -> "Iterator[Span]":
        """Start a span, and record the error that ends it. It does not become the current span."""
        trace = self.trace
        kind = trace.SpanKind.INTERNAL if operation in ("execute_tool", "invoke_agent") else trace.SpanKind.CLIENT
        context = None if parent is None else trace.set_span_in_context(parent)
        name = operation if subject is None else f"{operation} {subject}"
        span = self.tracer.start_span(name, context, kind, {"gen_ai.operation.name": operation, **attributes})
        try:
            yield span
        except (Exception, CancelledError) as error:  # not GeneratorExit: the reader closed a stream early
            self.fail(span, type(error).__name__, str(error))
            raise
        finally:
            span.end()

    def fail(self, span: "Span", kind: str, message: str) -> None:
        """Mark a span as failed. Messages of errors quote arguments and answers, so they count as content."""
        span.set_status(self.trace.StatusCode.ERROR, message[:1_000] if self.include_content else None)
        span.set_attribute("error.type", kind)


class TracedRun(Run):
    """A run that records its spans."""

    telemetry: Telemetry

    async def execute(self) -> None:
        telemetry, prepared, history = self.telemetry, self.prepared, self.state.history
        attributes = _model_attributes(prepared.provider, self.id)
        if telemetry.agent_name is not None:
            attributes["gen_ai.agent.name"] = telemetry.agent_name
        with telemetry.span("invoke_agent", telemetry.agent_name, None, attributes) as span:
            provider = _TracedProvider(prepared.provider, telemetry, span, self.id)
            self.prepared = replace(prepared, provider=provider, source=_TracedSource(prepared.source, telemetry, span))
            try:
                await super().execute()
            finally:
                span.set_attributes(_usage(self.state.usage))
                if telemetry.include_content:
                    messages = self.state.history.messages
                    span.set_attribute("gen_ai.input.messages", _json_messages(history.messages))
                    span.set_attribute("gen_ai.output.messages", _json_messages(messages[len(history) :]))


class _TracedProvider(WrapperProvider):
    """Records each request to the model."""

    def __init__(self, provider: Provider, telemetry: Telemetry, run_span: "Span", run_id: str) -> None:
        super().__init__(provider)
        self._telemetry, self._run_span, self._run_id = telemetry, run_span, run_id

    async def generate(self, request: ModelRequest) -> ModelResponse:
        with self._request_span(request) as span:
            response = await self.wrapped.generate(request)
            self._end(span, response)
            return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        with self._request_span(request) as span:
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    if isinstance(event, ModelResponse):
                        self._end(span, event)
                    yield event

    def _request_span(self, request: ModelRequest) -> "AbstractContextManager[Span]":
        settings = request.config.settings
        attributes = _model_attributes(self.wrapped, self._run_id)
        for key in ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
            if (value := getattr(settings, key)) is not None:
                attributes[f"gen_ai.request.{key}"] = value
        if self._telemetry.include_content:
            attributes["gen_ai.input.messages"] = _json_messages(request.history.messages)
            if request.config.system:
                instructions = [{"type": "text", "content": request.config.system}]
                attributes["gen_ai.system_instructions"] = _json(instructions)
        is_gemini = attributes["gen_ai.provider.name"] == "gcp.gemini"
        return self._telemetry.span("generate_content" if is_gemini else "chat", self.model, self._run_span, attributes)

    def _end(self, span: "Span", response: ModelResponse) -> None:
        finish = str(response.finish_reason)
        span.set_attributes(_usage(response.usage) | {"gen_ai.response.finish_reasons": (finish,)})
        if self._telemetry.include_content:
            span.set_attribute("gen_ai.output.messages", _json_messages((response.message,), finish))


class _TracedSource(WrapperSource):
    """Records each call. Its span is the current one while the tool runs, so that the tool's own spans are below it."""

    def __init__(self, source: ToolSource, telemetry: Telemetry, run_span: "Span") -> None:
        super().__init__(source)
        self._telemetry, self._run_span = telemetry, run_span

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        trace = self._telemetry.trace
        attributes = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id, "gen_ai.tool.type": "function"}
        if self._telemetry.include_content:
            attributes["gen_ai.tool.call.arguments"] = _json(call.arguments)
        # A call that a tool makes is below that tool's span.
        parent = trace.get_current_span() if context.depth else self._run_span
        with self._telemetry.span("execute_tool", call.name, parent, attributes) as span:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                result = await self.source.call(call, context)
            if result.is_error:
                self._telemetry.fail(span, "tool_error", str(result.value))
            if self._telemetry.include_content:
                span.set_attribute("gen_ai.tool.call.result", _json(result.value))
            return result


def _model_attributes(provider: Provider, run_id: str) -> dict[str, Any]:
    service = provider.profile.service
    return {
        "gen_ai.provider.name": _PROVIDER_NAMES.get(service, service.lower()),
        "gen_ai.request.model": provider.model,
        "gen_ai.conversation.id": run_id,
    }


def _usage(usage: Usage) -> dict[str, int]:
    counts = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output + usage.thoughts,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.thoughts,
    }
    return {name: count for name, count in counts.items() if count}


def _json_messages(messages: tuple[Message, ...], finish_reason: str | None = None) -> str:
    """Return messages in the form of the conventions."""
    finish = {} if finish_reason is None else {"finish_reason": finish_reason}
    documents = []
    for message in messages:
        role = "assistant" if message.role == "model" else message.role
        documents.append({"role": role, "parts": [_part(part) for part in message.parts], **finish})
    return _json(documents)


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Thought(text=text):
            return {"type": "reasoning", "content": text}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.id, "response": part.value}
    return {"type": type(part).__name__.lower()}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode("utf-8", "replace")
