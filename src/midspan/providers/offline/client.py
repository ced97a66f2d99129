"""The offline model as a provider: calls tools where a question leaves one reading, and reports their results."""

from typing import Any

import msgspec

from midspan._schema.tree import change_subschemas
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Output, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Part, Text, ToolCall, ToolResult
from midspan._types.specs import ToolChoice, ToolSpec
from midspan._types.texts import estimate_tokens
from midspan.errors import ConfigError, NoAnswerError
from midspan.providers.provider import ModelProfile
from midspan.providers.registry import ProviderFamily
from midspan.providers.stream import NonStreamingProvider

_REAL_MODEL = "For a language model, set GEMINI_API_KEY or name one, for example 'gemini:gemini-3.8-flash'."


class Offline(NonStreamingProvider):
    """A deterministic program in place of a model. It needs no network and no key, and knows nothing by itself."""

    profile = ModelProfile(supports_prompted_tools=False)
    model = "offline"

    def __init__(self, model: str = model) -> None:
        if model != self.model:
            raise ConfigError(f"'offline' has only one model; use 'offline' instead of 'offline:{model}'")

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return respond(request)


def respond(request: ModelRequest) -> ModelResponse:
    """Return the calls that the last question asks for, or an answer in words."""
    question, results = _last_question(request.history)
    parts: tuple[Part, ...] = () if results else _calls(request, question)
    output = request.config.output
    text = "" if parts else _answer(request, results) if output is None else _typed_answer(output, results)
    message = Message("model", parts or (Text(text),))
    usage = Usage(*(estimate_tokens("".join(item.text for item in items)) for items in (request.history, [message])))
    return ModelResponse(message, FinishReason.END, usage=usage, model=Offline.model)


def _last_question(history: History) -> tuple[str, list[ToolResult]]:
    """Return the last question of the user, and the results of the calls since then."""
    results: list[ToolResult] = []
    for message in reversed(history.messages):
        if message.role == "user" and message.text and not message.results:
            return message.text, results
        results = [*message.results, *results]
    return "", results


def _calls(request: ModelRequest, question: str) -> tuple[ToolCall, ...]:
    from midspan.providers.offline.choose import choose_calls  # the word lists load with the first question

    choice = request.config.tool_choice or ToolChoice("auto")
    specs = [tool for tool in request.config.tools if isinstance(tool, ToolSpec) and choice.mode != "none"]
    tools = [spec for spec in specs if not choice.names or spec.name in choice.names]
    first = sum(len(message.calls) for message in request.history)
    calls = enumerate(choose_calls(question, tools), first)
    return tuple(ToolCall(f"offline_{number}", name, arguments) for number, (name, arguments) in calls)


def _answer(request: ModelRequest, results: list[ToolResult]) -> str:
    if results:
        heads = [f"{result.name} failed: " if result.is_error else f"{result.name}: " for result in results]
        texts = [_in_words(result.model_value) for result in results]
        return "\n".join(f"{head}{text.removeprefix(head)}." for head, text in zip(heads, texts, strict=True))
    tools = ", ".join(tool.name for tool in request.config.tools[:20]) or "none"
    return (
        "I am Midspan's offline model, a small program: I call a tool only where a question clearly asks for it, and I "
        f"know nothing else. I have no answer to this. My tools: {tools}. {_REAL_MODEL}"
    )


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{str(key).replace('_', ' ')}: {_in_words(item)}" for key, item in value.items()]
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))[:4000]
    return {"None": "none", "True": "yes", "False": "no"}.get(repr(value), str(value)[:4000].rstrip("."))


def _typed_answer(output: Output, results: list[ToolResult]) -> str:
    """Return the only tool result as JSON, if it has exactly the requested form."""
    from midspan._schema.arguments import SchemaValidator  # only typed answers need it

    checker = SchemaValidator(_closed(output.json_schema or {}), label="output")
    if len(results) == 1 and not results[0].is_error and not checker.problems(results[0].value):
        return msgspec.json.encode(results[0].value).decode()
    reason = "the tool results do not have exactly this form" if results else "no tool was called"
    raise NoAnswerError(
        "the offline model cannot write a typed answer, it only passes on a single tool result of the requested form; "
        f"{reason}. {_REAL_MODEL}"
    )


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that accepts no other properties than those it declares."""
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return closed | change_subschemas(schema, _closed)


FAMILY = ProviderFamily(name="offline", make=Offline, summary="it only calls tools")
