"""The JSON documents that the server reads and writes. /openapi.json is made from them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from midspan._storage.journal import StateName
from midspan._types.exchange import Usage

_MAX_INTEGER = 2**31 - 1


def _pattern(pattern: str, description: str | None = None) -> Meta:
    """Return a constraint for the whole text: `$` of msgspec accepts a line break at the end, which `\\Z` does not."""
    return Meta(pattern=pattern.removesuffix("$") + r"\Z", description=description)


def with_json_patterns(schema: Any) -> Any:
    """Return a schema that msgspec made with patterns for JSON Schema, which has no `\\Z`."""
    if isinstance(schema, list):
        return [with_json_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {name: with_json_patterns(value) for name, value in schema.items()}
    if isinstance(pattern := fields.get("pattern"), str) and pattern.endswith(r"\Z"):
        fields["pattern"] = pattern.removesuffix(r"\Z") + "$"
    return fields


CURSOR_PATTERN = "^[0-9]{1,18}$"
SESSION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
SessionId = Annotated[str, _pattern(SESSION_PATTERN, "The name of a conversation; any that you like.")]
NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""Text that is not empty for Python, which counts more characters as white space than `\\s` of JSON Schema does."""
Prompt = Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": NOT_BLANK})]


class ErrorDocument(Struct, frozen=True):
    """An error."""

    error: str
    message: str
    code: int


# Chat, runs and sessions


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to ask, and whom."""

    prompt: Prompt
    provider: Annotated[str | None, Meta(description="The provider of the model, such as `gemini`.")] = None
    model: str | None = None
    session_id: Annotated[SessionId | None, Meta(description="The conversation to continue; a new one by default.")] = (
        None
    )
    context: Annotated[dict[str, Any] | None, Meta(description="Data for the tools, which must not trust it.")] = None


class ChatRequest(RunRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt."""

    stream: Annotated[bool, Meta(description="Answer with the events of the run as they happen.")] = False
    cancel_on_disconnect: Annotated[bool, Meta(description="Cancel the run if the client disconnects.")] = False


class ToolCallDocument(Struct, frozen=True):
    id: str
    name: str
    arguments: dict[str, Any]


class ToolResultDocument(Struct, frozen=True):
    tool_call_id: str
    name: str
    content: Any
    is_error: bool


class UsageDocument(Struct, frozen=True):
    """Tokens of all requests to the model."""

    input: int
    output: int
    thoughts: int
    cached: int
    total: int

    @classmethod
    def of(cls, usage: Usage) -> "UsageDocument":
        return cls(usage.input, usage.output, usage.thoughts, usage.cached, usage.total)


class ChatMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    iterations: Annotated[int, Meta(description="Turns of the model.")]
    finish_reason: str
    provider: str
    model: str
    tools_available: int | None = None
    max_reached: Annotated[bool, Meta(description="Whether a limit ended the run.")]
    limit: str | None = None
    usage: UsageDocument
    run_id: str
    session_id: str | None = None


class ChatResponse(Struct, frozen=True):
    """The answer, and the calls that led to it."""

    response: str
    tool_calls: list[ToolCallDocument]
    tool_results: list[ToolResultDocument]
    metadata: ChatMetadata


class RunDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run."""

    run_id: str
    session_id: str | None = None
    state: StateName
    phase: Annotated[str | None, Meta(description="What a running run is doing.")] = None
    model: str | None = None
    turns: int
    events: int
    usage: UsageDocument
    started_at: float
    updated_at: float
    error: ErrorDocument | None = None
    result: Annotated[ChatResponse | None, Meta(description="The answer, if there is one; not in lists.")] = None


class RunList(Struct, frozen=True, omit_defaults=True):
    runs: list[RunDocument]
    next: Annotated[str | None, Meta(description="Pass it as `after` to get the next page.")] = None


class SessionDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation."""

    session_id: str
    runs: int
    last_run: str
    started_at: float
    updated_at: float
    messages: Annotated[list[dict[str, Any]] | None, Meta(description="The messages so far; not in lists.")] = None


class SessionList(Struct, frozen=True, omit_defaults=True):
    sessions: list[SessionDocument]
    next: str | None = None


class ToolDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str
    parameters: dict[str, Any] | None = None
    read_only: bool | None = None


class ToolList(Struct, frozen=True):
    tools: list[ToolDocument]


class ModelDocument(Struct, frozen=True):
    id: str
    provider: str
    model: str
    default: bool


class ModelList(Struct, frozen=True):
    models: list[ModelDocument]


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: Literal["healthy", "degraded", "shutting_down"]
    mcp_server_ready: Annotated[bool | None, Meta(description="Whether all sources of tools can be used.")] = None
    services: dict[str, str] | None = None


# The Chat Completions API of OpenAI


class OpenAIError(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIErrorDocument(Struct, frozen=True):
    error: OpenAIError


_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
URL_PATTERN = rf"^(?:https?://[!-~]+|data:[a-z]+/[A-Za-z0-9.+-]+;base64,{_BASE64})$"
Url = Annotated[str, _pattern(URL_PATTERN)]


class ImageUrl(Struct, frozen=True):
    url: Url


class InputAudio(Struct, frozen=True):
    data: Annotated[str, _pattern(f"^{_BASE64}$")]
    format: Annotated[str, _pattern(r"^[A-Za-z0-9.+-]{1,32}$")]


class InputFile(Struct, frozen=True):
    file_data: Url
    filename: str | None = None


class TextPart(Struct, frozen=True, tag="text"):
    text: str


class RefusalPart(Struct, frozen=True, tag="refusal"):
    refusal: str


class ImagePart(Struct, frozen=True, tag="image_url"):
    image_url: ImageUrl


class AudioPart(Struct, frozen=True, tag="input_audio"):
    input_audio: InputAudio


class FilePart(Struct, frozen=True, tag="file"):
    file: InputFile


ContentPart = TextPart | RefusalPart | ImagePart | AudioPart | FilePart
ToolName = Annotated[str, _pattern(r"^[A-Za-z0-9_-]{1,64}$")]


class OpenAIFunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class OpenAIToolCall(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: OpenAIFunctionCall


class OpenAIMessage(Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    tool_calls: list[OpenAIToolCall] | None = None
    tool_call_id: str | None = None


class OpenAIFunction(Struct, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class OpenAITool(Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: OpenAIFunction


class NamedFunction(Struct, frozen=True):
    name: str


class NamedToolChoice(Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: NamedFunction


class JsonSchemaFormat(Struct, frozen=True, kw_only=True):
    schema: dict[str, Any] | None = None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    type: Annotated[str, Meta(extra_json_schema={"enum": ["text", "json_object", "json_schema"]})]
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """A request as OpenAI's API defines it. Fields that are not listed are ignored.

    Whole numbers are declared as floats, because JSON may write them as `5.0`.
    """

    messages: Annotated[list[OpenAIMessage], Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[OpenAITool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    n: Annotated[float, Meta(ge=1, le=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[float, Meta(ge=1, le=_MAX_INTEGER, multiple_of=1)] | None = None
    max_completion_tokens: Annotated[float, Meta(ge=1, le=_MAX_INTEGER, multiple_of=1)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[float, Meta(ge=-_MAX_INTEGER, le=_MAX_INTEGER, multiple_of=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    cancel_on_disconnect: Annotated[
        bool, Meta(description="An extension: cancel the run if the client disconnects.")
    ] = True


class OpenAIUsage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> "OpenAIUsage":
        return cls(usage.input + usage.tools, usage.output + usage.thoughts, usage.total)


class CompletionMessage(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[OpenAIToolCall] | None = None


class CompletionChoice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: CompletionMessage
    finish_reason: str
    logprobs: None = None


class Completion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: OpenAIUsage


class OpenAIModel(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class OpenAIModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


# The UI messages of Vercel's AI SDK


class UiPart(Struct, frozen=True, kw_only=True):
    """A part of a message. Parts of other types than `text` and `file` are ignored."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = field(default=None, name="mediaType")
    filename: str | None = None


class UiMessage(Struct, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant"]
    parts: list[UiPart]


class UiChatRequest(Struct, frozen=True, kw_only=True):
    """What `useChat` sends. Fields that are not listed are ignored."""

    messages: Annotated[list[UiMessage], Meta(min_length=1)]
    id: Annotated[SessionId | None, Meta(description="The id of the chat, which is the id of its session here.")] = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    provider: str | None = None
    model: str | None = None
    context: dict[str, Any] | None = None
