"""The messages of the Gemini API with which a caller declares tools: schemas, functions, built-in tools, modes."""

from typing import Any

from msgspec import UNSET, UnsetType

from midspan._types.specs import BuiltinTool
from midspan.providers.gemini.proto import Number, Proto, Word, to_plain


class Schema(Proto, frozen=True):
    """The subset of OpenAPI 3.0 that `parameters` and `responseSchema` are written in."""

    type: Word | None = None
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
    behavior: Word | None = None


class Builtin(Proto, frozen=True):
    """A tool that Google runs itself; a field of `Tool` has its name."""

    def as_builtin(self) -> BuiltinTool:
        """The same for any place where tools are given, beside functions."""
        kind = type(self).__name__
        return BuiltinTool(kind[0].lower() + kind[1:], to_plain(self))


class Interval(Proto, frozen=True):
    start_time: str | None = None
    end_time: str | None = None


class SearchTypes(Proto, frozen=True):
    web_search: dict[str, Any] | None = None
    image_search: dict[str, Any] | None = None


class GoogleSearch(Builtin, frozen=True):
    search_types: SearchTypes | None = None
    time_range_filter: Interval | None = None
    exclude_domains: list[str] | None = None
    blocking_confidence: Word | None = None


class DynamicRetrievalConfig(Proto, frozen=True):
    mode: Word | None = None
    dynamic_threshold: Number | None = None


class GoogleSearchRetrieval(Builtin, frozen=True):
    dynamic_retrieval_config: DynamicRetrievalConfig | None = None


class UrlContext(Builtin, frozen=True):
    pass


class CodeExecution(Builtin, frozen=True):
    pass


class GoogleMaps(Builtin, frozen=True):
    enable_widget: bool | None = None
    auth_config: dict[str, Any] | None = None
    grounding_types: dict[str, Any] | None = None


class FileSearch(Builtin, frozen=True):
    file_search_store_names: list[str] | None = None
    top_k: int | None = None
    metadata_filter: str | None = None


class ComputerUse(Builtin, frozen=True):
    environment: Word | None = None
    excluded_predefined_functions: list[str] | None = None
    enable_prompt_injection_detection: bool | None = None
    disabled_safety_policies: list[Word] | None = None


class StreamableHttpTransport(Proto, frozen=True):
    url: str | None = None
    headers: dict[str, str] | None = None
    timeout: str | None = None
    sse_read_timeout: str | None = None
    terminate_on_close: bool | None = None


class McpServer(Proto, frozen=True):
    name: str | None = None
    streamable_http_transport: StreamableHttpTransport | None = None


class EnterpriseWebSearch(Builtin, frozen=True):
    exclude_domains: list[str] | None = None
    blocking_confidence: Word | None = None


class Tool(Proto, frozen=True):
    function_declarations: list[FunctionDeclaration] | None = None
    google_search: GoogleSearch | None = None
    google_search_retrieval: GoogleSearchRetrieval | None = None
    url_context: UrlContext | None = None
    code_execution: CodeExecution | None = None
    google_maps: GoogleMaps | None = None
    file_search: FileSearch | None = None
    computer_use: ComputerUse | None = None
    mcp_servers: list[McpServer] | None = None
    retrieval: dict[str, Any] | None = None
    enterprise_web_search: EnterpriseWebSearch | None = None
    parallel_ai_search: dict[str, Any] | None = None
    exa_ai_search: dict[str, Any] | None = None


class FunctionCallingConfig(Proto, frozen=True):
    mode: Word | None = None
    allowed_function_names: list[str] | None = None
    stream_function_call_arguments: bool | None = None


class LatLng(Proto, frozen=True):
    latitude: Number | None = None
    longitude: Number | None = None


class RetrievalConfig(Proto, frozen=True):
    lat_lng: LatLng | None = None
    language_code: str | None = None


class ToolConfig(Proto, frozen=True):
    function_calling_config: FunctionCallingConfig | None = None
    retrieval_config: RetrievalConfig | None = None
    include_server_side_tool_invocations: bool | None = None
