"""The messages of the Gemini API, field by field: what a client sends, then what a server sends.

It knows names and types, no rules of the API. Fields that are not here are kept in `extra`; rare messages are dicts.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from midspan._types.specs import BuiltinTool
from midspan.providers.gemini.proto import EnumValue, Number, Proto, to_plain


class Blob(Proto, frozen=True):
    mime_type: str | None = None
    data: str | None = None
    """Base64, in the alphabet that the sender chose."""
    display_name: str | None = None


class FileData(Proto, frozen=True):
    file_uri: str | None = None
    mime_type: str | None = None
    display_name: str | None = None


class FunctionCall(Proto, frozen=True):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    """Pieces of the arguments, streamed by Vertex."""
    will_continue: bool | None = None


class FunctionResponsePart(Proto, frozen=True):
    inline_data: Blob | None = None
    file_data: FileData | None = None
    media_processing: EnumValue | None = None


class FunctionResponse(Proto, frozen=True):
    name: str | None = None
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list[FunctionResponsePart] | None = None
    scheduling: EnumValue | None = None
    will_continue: bool | None = None


class ExecutableCode(Proto, frozen=True):
    code: str | None = None
    language: EnumValue | None = None
    id: str | None = None


class CodeExecutionResult(Proto, frozen=True):
    outcome: EnumValue | None = None
    output: str | None = None
    id: str | None = None


class ServerToolUse(Proto, frozen=True):
    """A call that the server made and answered itself, or its response: echoed, never executed."""

    id: str | None = None
    tool_type: EnumValue | None = None
    args: dict[str, Any] | None = None
    response: dict[str, Any] | None = None


class Part(Proto, frozen=True):
    """One of the first ten fields, with any of the others."""

    text: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    tool_call: ServerToolUse | None = None
    tool_response: ServerToolUse | None = None
    audio_transcription: dict[str, Any] | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    video_metadata: dict[str, Any] | None = None
    media_resolution: dict[str, Any] | None = None
    media_processing: EnumValue | None = None
    part_metadata: dict[str, Any] | None = None
    speech_metadata: dict[str, Any] | None = None


class Content(Proto, frozen=True):
    role: str | None = None
    parts: list[Part] | None = None


class Schema(Proto, frozen=True):
    """The subset of OpenAPI 3.0 that `parameters` and `responseSchema` are written in."""

    type: EnumValue | None = None
    format: str | None = None
    title: str | None = None
    description: str | None = None
    nullable: bool | None = None
    default: Any | UnsetType = UNSET
    example: Any | UnsetType = UNSET
    enum: list[str] | None = None
    items: "Schema | None" = None
    min_items: int | str | None = None
    max_items: int | str | None = None
    properties: "dict[str, Schema] | None" = None
    required: list[str] | None = None
    min_properties: int | str | None = None
    max_properties: int | str | None = None
    property_ordering: list[str] | None = None
    min_length: int | str | None = None
    max_length: int | str | None = None
    pattern: str | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    any_of: "list[Schema] | None" = None
    additional_properties: Any | UnsetType = UNSET
    defs: "dict[str, Schema] | None" = None
    ref: str | None = None


class FunctionDeclaration(Proto, frozen=True):
    name: str | None = None
    description: str | None = None
    parameters: Schema | None = None
    parameters_json_schema: Any | UnsetType = UNSET
    response: Schema | None = None
    response_json_schema: Any | UnsetType = UNSET
    behavior: EnumValue | None = None


class Builtin(Proto, frozen=True):
    """A tool that Google runs itself; a field of `Tool` has its name."""

    def as_builtin(self) -> BuiltinTool:
        """Return this tool in the form that agents accept."""
        name = type(self).__name__
        return BuiltinTool(name[0].lower() + name[1:], to_plain(self))


class GoogleSearch(Builtin, frozen=True):
    search_types: dict[str, Any] | None = None
    time_range_filter: dict[str, Any] | None = None


class UrlContext(Builtin, frozen=True):
    pass


class CodeExecution(Builtin, frozen=True):
    pass


class GoogleMaps(Builtin, frozen=True):
    enable_widget: bool | None = None


class FileSearch(Builtin, frozen=True):
    file_search_store_names: list[str] | None = None
    top_k: int | None = None
    metadata_filter: str | None = None


class ComputerUse(Builtin, frozen=True):
    environment: EnumValue | None = None
    excluded_predefined_functions: list[str] | None = None
    enable_prompt_injection_detection: bool | None = None
    disabled_safety_policies: list[EnumValue] | None = None


class McpServer(Proto, frozen=True):
    name: str | None = None
    streamable_http_transport: dict[str, Any] | None = None


class Tool(Proto, frozen=True):
    function_declarations: list[FunctionDeclaration] | None = None
    google_search: GoogleSearch | None = None
    google_search_retrieval: dict[str, Any] | None = None
    url_context: UrlContext | None = None
    code_execution: CodeExecution | None = None
    google_maps: GoogleMaps | None = None
    file_search: FileSearch | None = None
    computer_use: ComputerUse | None = None
    mcp_servers: list[McpServer] | None = None
    retrieval: dict[str, Any] | None = None
    enterprise_web_search: dict[str, Any] | None = None
    parallel_ai_search: dict[str, Any] | None = None
    exa_ai_search: dict[str, Any] | None = None


class FunctionCallingConfig(Proto, frozen=True):
    mode: EnumValue | None = None
    allowed_function_names: list[str] | None = None
    stream_function_call_arguments: bool | None = None


class ToolConfig(Proto, frozen=True):
    function_calling_config: FunctionCallingConfig | None = None
    retrieval_config: dict[str, Any] | None = None
    include_server_side_tool_invocations: bool | None = None


class ThinkingConfig(Proto, frozen=True):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: EnumValue | None = None


class GenerationConfig(Proto, frozen=True):
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    candidate_count: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    seed: int | None = None
    response_mime_type: str | None = None
    response_schema: Schema | None = None
    response_json_schema: Any | UnsetType = UNSET
    response_format: Any | UnsetType = UNSET
    response_modalities: list[EnumValue] | None = None
    media_resolution: EnumValue | None = None
    speech_config: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None
    image_config: dict[str, Any] | None = None
    enable_enhanced_civic_answers: bool | None = None
    audio_transcription_config: dict[str, Any] | None = None
    translation_config: dict[str, Any] | None = None
    audio_timestamp: bool | None = None
    routing_config: dict[str, Any] | None = None
    model_selection_config: dict[str, Any] | None = None


class SafetySetting(Proto, frozen=True):
    category: EnumValue | None = None
    threshold: EnumValue | None = None
    method: EnumValue | None = None


class Prompt(Proto, frozen=True):
    """The fields that the messages about a prompt have in common."""

    model: str | None = None
    contents: list[Content] | None = None
    system_instruction: Content | None = None
    tools: list[Tool] | None = None


class GenerateContentRequest(Prompt, frozen=True):
    tool_config: ToolConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    generation_config: GenerationConfig | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: EnumValue | None = None
    store: bool | None = None
    continuation_token: str | None = None
    model_armor_config: dict[str, Any] | None = None
    generation_output_config: dict[str, Any] | None = None


class CountTokensRequest(Prompt, frozen=True):
    """The Developer API wraps the request to be counted; Vertex takes its fields themselves."""

    generate_content_request: GenerateContentRequest | None = None
    generation_config: GenerationConfig | None = None


class UsageMetadata(Proto, frozen=True):
    """A running total: the last one of a stream counts."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    thoughts_token_count: int | None = None
    total_token_count: int | None = None
    prompt_tokens_details: list[dict[str, Any]] | None = None
    cache_tokens_details: list[dict[str, Any]] | None = None
    candidates_tokens_details: list[dict[str, Any]] | None = None
    tool_use_prompt_tokens_details: list[dict[str, Any]] | None = None
    traffic_type: EnumValue | None = None
    service_tier: EnumValue | None = None


class PromptFeedback(Proto, frozen=True):
    block_reason: EnumValue | None = None
    block_reason_message: str | None = None
    safety_ratings: list[dict[str, Any]] | None = None


class GroundingSource(Proto, frozen=True):
    """A page, an image, a document or a place. The fields that only some of them have are in `extra`."""

    uri: str | None = None
    title: str | None = None
    source_uri: str | None = None


class GroundingChunk(Proto, frozen=True):
    web: GroundingSource | None = None
    image: GroundingSource | None = None
    retrieved_context: GroundingSource | None = None
    maps: GroundingSource | None = None


class GroundingMetadata(Proto, frozen=True):
    web_search_queries: list[str] | None = None
    search_entry_point: dict[str, Any] | None = None
    grounding_chunks: list[GroundingChunk] | None = None
    grounding_supports: list[dict[str, Any]] | None = None


class UrlContextMetadata(Proto, frozen=True):
    url_metadata: list[dict[str, Any]] | None = None


class Candidate(Proto, frozen=True):
    content: Content | None = None
    finish_reason: EnumValue | None = None
    finish_message: str | None = None
    index: int | None = None
    safety_ratings: list[dict[str, Any]] | None = None
    citation_metadata: dict[str, Any] | None = None
    """`citationSources` from the Developer API, `citations` from Vertex."""
    grounding_metadata: GroundingMetadata | None = None
    url_context_metadata: UrlContextMetadata | None = None
    avg_logprobs: Number | None = None
    logprobs_result: dict[str, Any] | None = None
    token_count: int | None = None
    continuation_token: str | None = None


class GenerateContentResponse(Proto, frozen=True):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    model_status: dict[str, Any] | None = None


class CountTokensResponse(Proto, frozen=True):
    total_tokens: int | None = None
    cached_content_token_count: int | None = None
    total_billable_characters: int | None = None
    prompt_tokens_details: list[dict[str, Any]] | None = None
    cache_tokens_details: list[dict[str, Any]] | None = None


class Model(Proto, frozen=True):
    name: str | None = None
    display_name: str | None = None
    description: str | None = None
    input_token_limit: int | None = None
    output_token_limit: int | None = None
    supported_generation_methods: list[str] | None = None


class CachedContent(Prompt, frozen=True):
    """A cache, both as it is asked for and as it is described by the server."""

    name: str | None = None
    display_name: str | None = None
    tool_config: ToolConfig | None = None
    ttl: str | None = None
    expire_time: str | None = None
    create_time: str | None = None
    update_time: str | None = None
    usage_metadata: UsageMetadata | None = None


class Page(Proto, frozen=True):
    """A page of a list: of models, as the Developer API and as Vertex name them, or of caches."""

    models: list[Model] | None = None
    publisher_models: list[Model] | None = None
    cached_contents: list[CachedContent] | None = None
    next_page_token: str | None = None
