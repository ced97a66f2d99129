"""The messages of the Gemini API that a server sends: answers with their usage, safety ratings and sources; models."""

from typing import Any

from midspan.providers.gemini.proto import Number, Proto, Word
from midspan.providers.gemini.wire import CachedContent, Content


class ModalityTokenCount(Proto, frozen=True):
    modality: Word | None = None
    token_count: int | None = None


class UsageMetadata(Proto, frozen=True):
    """A running total: the last one of a stream counts."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    thoughts_token_count: int | None = None
    total_token_count: int | None = None
    prompt_tokens_details: list[ModalityTokenCount] | None = None
    cache_tokens_details: list[ModalityTokenCount] | None = None
    candidates_tokens_details: list[ModalityTokenCount] | None = None
    tool_use_prompt_tokens_details: list[ModalityTokenCount] | None = None
    traffic_type: Word | None = None
    service_tier: Word | None = None


class SafetyRating(Proto, frozen=True):
    category: Word | None = None
    probability: Word | None = None
    probability_score: Number | None = None
    severity: Word | None = None
    severity_score: Number | None = None
    blocked: bool | None = None
    overwritten_threshold: Word | None = None


class PromptFeedback(Proto, frozen=True):
    block_reason: Word | None = None
    block_reason_message: str | None = None
    safety_ratings: list[SafetyRating] | None = None


class Citation(Proto, frozen=True):
    start_index: int | None = None
    end_index: int | None = None
    uri: str | None = None
    title: str | None = None
    license: str | None = None
    publication_date: dict[str, Any] | None = None


class CitationMetadata(Proto, frozen=True):
    """The Developer API says `citationSources`, Vertex says `citations`."""

    citations: list[Citation] | None = None
    citation_sources: list[Citation] | None = None


class WebSource(Proto, frozen=True):
    uri: str | None = None
    title: str | None = None
    domain: str | None = None


class ImageSource(Proto, frozen=True):
    source_uri: str | None = None
    image_uri: str | None = None
    title: str | None = None
    domain: str | None = None


class RetrievedContext(Proto, frozen=True):
    uri: str | None = None
    title: str | None = None
    text: str | None = None
    document_name: str | None = None
    file_search_store: str | None = None
    page_number: int | None = None
    media_id: str | None = None
    rag_chunk: dict[str, Any] | None = None
    custom_metadata: list[dict[str, Any]] | None = None


class MapsSource(Proto, frozen=True):
    uri: str | None = None
    title: str | None = None
    text: str | None = None
    place_id: str | None = None
    place_answer_sources: dict[str, Any] | None = None
    route: dict[str, Any] | None = None


class GroundingChunk(Proto, frozen=True):
    web: WebSource | None = None
    image: ImageSource | None = None
    retrieved_context: RetrievedContext | None = None
    maps: MapsSource | None = None


class Segment(Proto, frozen=True):
    part_index: int | None = None
    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class GroundingSupport(Proto, frozen=True):
    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None
    confidence_scores: list[Number] | None = None
    rendered_parts: list[int] | None = None


class SearchEntryPoint(Proto, frozen=True):
    rendered_content: str | None = None
    sdk_blob: str | None = None


class GroundingMetadata(Proto, frozen=True):
    web_search_queries: list[str] | None = None
    image_search_queries: list[str] | None = None
    retrieval_queries: list[str] | None = None
    search_entry_point: SearchEntryPoint | None = None
    grounding_chunks: list[GroundingChunk] | None = None
    grounding_supports: list[GroundingSupport] | None = None
    retrieval_metadata: dict[str, Any] | None = None
    google_maps_widget_context_token: str | None = None
    source_flagging_uris: list[dict[str, Any]] | None = None


class UrlMetadata(Proto, frozen=True):
    retrieved_url: str | None = None
    url_retrieval_status: Word | None = None


class UrlContextMetadata(Proto, frozen=True):
    url_metadata: list[UrlMetadata] | None = None


class LogprobsCandidate(Proto, frozen=True):
    token: str | None = None
    token_id: int | None = None
    log_probability: Number | None = None


class LogprobsTopCandidates(Proto, frozen=True):
    candidates: list[LogprobsCandidate] | None = None


class LogprobsResult(Proto, frozen=True):
    chosen_candidates: list[LogprobsCandidate] | None = None
    top_candidates: list[LogprobsTopCandidates] | None = None
    log_probability_sum: Number | None = None


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
