"""The messages of the Gemini API, field by field: contents, requests, responses, caches, models.

Above are `encode` and `decode`, which turn our values into these and back; below is `proto`, which reads and
writes them. This module knows no values of ours and no rules of the API, only what is called how.
How tools are declared is in `declarations`, what a server says about an answer in `annotations`.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from midspan.providers.gemini.annotations import (
    CitationMetadata,
    GroundingMetadata,
    LogprobsResult,
    ModalityTokenCount,
    PromptFeedback,
    SafetyRating,
    UrlContextMetadata,
    UsageMetadata,
)
from midspan.providers.gemini.declarations import Schema, Tool, ToolConfig
from midspan.providers.gemini.proto import Number, Proto, Word


class Blob(Proto, frozen=True):
    mime_type: str | None = None
    data: str | None = None
    """Base64, in the alphabet that the sender chose."""
    display_name: str | None = None


class FileData(Proto, frozen=True):
    file_uri: str | None = None
    mime_type: str | None = None
    display_name: str | None = None


class PartialArg(Proto, frozen=True):
    """A piece of a call's arguments, streamed by Vertex; the same path again appends to its string."""

    json_path: str | None = None
    string_value: str | None = None
    number_value: Number | None = None
    bool_value: bool | None = None
    null_value: Word | None = None
    will_continue: bool | None = None


class FunctionCall(Proto, frozen=True):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class FunctionResponsePart(Proto, frozen=True):
    inline_data: Blob | None = None
    file_data: FileData | None = None
    media_processing: Word | None = None


class FunctionResponse(Proto, frozen=True):
    name: str | None = None
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list[FunctionResponsePart] | None = None
    scheduling: Word | None = None
    will_continue: bool | None = None


class ExecutableCode(Proto, frozen=True):
    code: str | None = None
    language: Word | None = None
    id: str | None = None


class CodeExecutionResult(Proto, frozen=True):
    outcome: Word | None = None
    output: str | None = None
    id: str | None = None


class ServerToolCall(Proto, frozen=True):
    """A call that the server made and answered itself: echoed, never executed."""

    id: str | None = None
    tool_type: Word | None = None
    args: dict[str, Any] | None = None


class ServerToolResponse(Proto, frozen=True):
    id: str | None = None
    tool_type: Word | None = None
    response: dict[str, Any] | None = None


class VideoMetadata(Proto, frozen=True):
    start_offset: str | None = None
    end_offset: str | None = None
    fps: Number | None = None


class MediaResolution(Proto, frozen=True):
    level: Word | None = None
    num_tokens: int | None = None


class SpeechMetadata(Proto, frozen=True):
    speaker: str | None = None
    style: str | None = None


class Part(Proto, frozen=True):
    """One of the first ten fields, with any of the others."""

    text: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    tool_call: ServerToolCall | None = None
    tool_response: ServerToolResponse | None = None
    audio_transcription: dict[str, Any] | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    video_metadata: VideoMetadata | None = None
    media_resolution: MediaResolution | None = None
    media_processing: Word | None = None
    part_metadata: dict[str, Any] | None = None
    speech_metadata: SpeechMetadata | None = None


class Content(Proto, frozen=True):
    role: str | None = None
    parts: list[Part] | None = None


class ThinkingConfig(Proto, frozen=True):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: Word | None = None


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
    response_modalities: list[Word] | None = None
    media_resolution: Word | None = None
    speech_config: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None
    image_config: dict[str, Any] | None = None
    enable_enhanced_civic_answers: bool | None = None
    audio_transcription_config: dict[str, Any] | None = None
    translation_config: dict[str, Any] | None = None
    audio_timestamp: bool | None = None
    routing_config: dict[str, Any] | None = None
    model_selection_config: dict[str, Any] | None = None
    enable_affective_dialog: bool | None = None


class SafetySetting(Proto, frozen=True):
    category: Word | None = None
    threshold: Word | None = None
    method: Word | None = None


class ModelArmorConfig(Proto, frozen=True):
    prompt_template_name: str | None = None
    response_template_name: str | None = None


class GenerateContentRequest(Proto, frozen=True):
    model: str | None = None
    contents: list[Content] | None = None
    system_instruction: Content | None = None
    tools: list[Tool] | None = None
    tool_config: ToolConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    generation_config: GenerationConfig | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: Word | None = None
    store: bool | None = None
    continuation_token: str | None = None
    model_armor_config: ModelArmorConfig | None = None
    generation_output_config: dict[str, Any] | None = None


class CountTokensRequest(Proto, frozen=True):
    """The Developer API wraps the request to be counted; Vertex takes its fields themselves."""

    generate_content_request: GenerateContentRequest | None = None
    model: str | None = None
    contents: list[Content] | None = None
    system_instruction: Content | None = None
    tools: list[Tool] | None = None
    generation_config: GenerationConfig | None = None


class CachedContentUsage(Proto, frozen=True):
    total_token_count: int | None = None
    text_count: int | None = None
    image_count: int | None = None
    audio_duration_seconds: int | None = None
    video_duration_seconds: int | None = None


class CachedContent(Proto, frozen=True):
    """A cache, both as it is asked for and as it is described by the server."""

    name: str | None = None
    display_name: str | None = None
    model: str | None = None
    contents: list[Content] | None = None
    system_instruction: Content | None = None
    tools: list[Tool] | None = None
    tool_config: ToolConfig | None = None
    ttl: str | None = None
    expire_time: str | None = None
    create_time: str | None = None
    update_time: str | None = None
    usage_metadata: CachedContentUsage | None = None


class Candidate(Proto, frozen=True):
    content: Content | None = None
    finish_reason: Word | None = None
    finish_message: str | None = None
    index: int | None = None
    safety_ratings: list[SafetyRating] | None = None
    citation_metadata: CitationMetadata | None = None
    grounding_metadata: GroundingMetadata | None = None
    url_context_metadata: UrlContextMetadata | None = None
    avg_logprobs: Number | None = None
    logprobs_result: LogprobsResult | None = None
    token_count: int | None = None
    continuation_token: str | None = None


class ModelStatus(Proto, frozen=True):
    model_stage: Word | None = None
    retirement_time: str | None = None
    message: str | None = None


class GenerateContentResponse(Proto, frozen=True):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    model_status: ModelStatus | None = None


class Status(Proto, frozen=True):
    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: list[dict[str, Any]] | None = None


class ErrorResponse(Proto, frozen=True):
    error: Status | None = None


class CountTokensResponse(Proto, frozen=True):
    total_tokens: int | None = None
    cached_content_token_count: int | None = None
    total_billable_characters: int | None = None
    prompt_tokens_details: list[ModalityTokenCount] | None = None
    cache_tokens_details: list[ModalityTokenCount] | None = None


class Model(Proto, frozen=True):
    name: str | None = None
    display_name: str | None = None
    description: str | None = None
    version: str | None = None
    base_model_id: str | None = None
    input_token_limit: int | None = None
    output_token_limit: int | None = None
    supported_generation_methods: list[str] | None = None
    temperature: Number | None = None
    max_temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    thinking: bool | None = None


class ListModelsResponse(Proto, frozen=True):
    models: list[Model] | None = None
    next_page_token: str | None = None


class ListCachedContentsResponse(Proto, frozen=True):
    cached_contents: list[CachedContent] | None = None
    next_page_token: str | None = None
