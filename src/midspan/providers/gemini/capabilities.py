"""Facts about models and APIs: what they accept, finish reasons. Unknown models are treated like the newest ones."""

import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from midspan._schema.dialect import NameRule, SchemaDialect
from midspan._types.exchange import FinishReason
from midspan._types.specs import ThinkingLevel
from midspan.providers.provider import ModelProfile

_MODELS = (
    "gemini-3.8-flash gemini-3.7-flash gemini-3.6-flash gemini-3.5-flash gemini-3.5-flash-lite gemini-3.1-flash-lite "
    "gemini-3.1-pro-preview gemini-4-argon gemini-4-carbon gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite"
)
KNOWN_MODELS = tuple(_MODELS.split())
"""Models that call functions, when this version was released."""
DEFAULT_MODEL = KNOWN_MODELS[0]
KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
"""Environment variables with an API key; the first that is set is used."""
FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
"""Characters in the name of a function. Servers accept 64; newer documentation says 128."""
MAX_NAME_CHARS = 64
MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""https://blog.google/innovation-and-ai/technology/developers-tools/gemini-api-new-file-limits"""
MAX_FILE_BYTES = MAX_REQUEST_BYTES * 3 // 4
"""The largest file that fits into a request, where it is base64, which adds a third."""
_LEVELS: tuple[ThinkingLevel, ...] = ("low", "medium", "high")


class Api(StrEnum):
    DEVELOPER = "developer"
    VERTEX = "vertex"


class Capabilities(Struct, frozen=True, cache_hash=True):
    """One model behind one API. Replace a field if your endpoint differs from what we know."""

    api: Api = Api.DEVELOPER
    functions: bool = True
    """Accepts function declarations and calls functions."""
    system_instruction: bool = True
    """Accepts a system prompt. Otherwise it is sent as the first message of the user."""
    call_ids: bool = True
    """Accepts the ids of calls. Ids that Midspan made up (`local_id`) are never sent."""
    signatures: bool = True
    """Rejects its own calls of the current turn if they come back without their thought signature."""
    media_in_results: bool = True
    builtin_with_functions: bool = True
    json_with_functions: bool = True
    """Structured output and function declarations in the same request."""
    server_side_calls: bool = True
    """Needs `includeServerSideToolInvocations` if functions and built-in tools are declared together."""
    server_side_parts: bool = True
    """Shows calls of built-in tools as parts, and accepts these parts back."""
    thinking_levels: tuple[ThinkingLevel, ...] = _LEVELS
    """Empty if thinking is given in tokens, or if the model does not think."""
    thinking_budget: bool = False
    sampling: bool = True
    """Temperature, top-p and top-k have an effect."""
    explicit_cache: bool = True
    streamed_arguments: bool = False
    result_key: str = "result"
    """The name for a result that is not an object, because the API accepts only objects."""


@lru_cache(maxsize=256)
def capabilities_of(model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> Capabilities:
    """Return what is known about a model, given by its id with or without `models/` or a publisher's path before it."""
    name = model.rpartition("/")[2].lower()
    generation = generation_of(name)
    is_at_least_3 = generation >= (3, 0)
    is_gemma = name.startswith("gemma")
    thinks = not re.search(_WITHOUT_THINKING, name)
    has_minimal = re.match(_WITH_MINIMAL_THINKING, name)
    levels: tuple[ThinkingLevel, ...] = ("minimal", *_LEVELS) if has_minimal else _LEVELS
    return Capabilities(
        api=api,
        functions=not is_gemma and not re.search(_WITHOUT_FUNCTIONS, name),
        system_instruction=not (is_gemma and generation < (4, 0)),
        # Vertex v1 answers `Unknown name "id"`: https://github.com/langchain-ai/langchainjs/issues/11209
        call_ids=not (api is Api.VERTEX and version == "v1"),
        signatures=is_at_least_3 and not is_gemma,
        media_in_results=is_at_least_3,
        builtin_with_functions=is_at_least_3,
        json_with_functions=is_at_least_3,
        server_side_calls=is_at_least_3 and api is Api.DEVELOPER,
        server_side_parts=api is Api.DEVELOPER,
        thinking_levels=levels if thinks and is_at_least_3 else (),
        thinking_budget=thinks and not is_at_least_3,
        # A tuned model or an endpoint on Vertex may be of any generation, and the newest only ignores these settings.
        sampling=generation < (4, 0) or is_gemma or not re.match(_GENERATION, name),
        explicit_cache=generation < (4, 0) and not is_gemma,
        streamed_arguments=is_at_least_3 and api is Api.VERTEX,
    )


def successor_of(model: str) -> str | None:
    """Return the model to use instead of one that was shut down; None for all others."""
    name = model.rpartition("/")[2].lower()
    if not re.match(_RETIRED, name):
        return None
    if "lite" in name or "8b" in name:
        return "gemini-3.5-flash-lite"
    return "gemini-3.1-pro-preview" if "pro" in name else DEFAULT_MODEL


# The patterns are compiled when they are first used, because compiling takes longer than the rest of the import.
_GENERATION = r"(?:gemini|gemma)-(\d+)(?:\.(\d+))?(?![\d.])"
_LATEST = r"^gemini-(flash|flash-lite|pro)-latest$"
_RETIRED = r"gemini-(1\.0|1\.5|2\.0)\b|gemini-(pro|pro-vision|ultra)$|(chat|text)-bison"
_WITHOUT_FUNCTIONS = r"-image\b|-image-|-tts\b|-tts-|transcribe|embedding|live-translate|^imagen|^veo"
_WITH_MINIMAL_THINKING = r"gemini-3(\.[1-6])?-flash"
_WITHOUT_THINKING = r"^gemini-(1\.|2\.0)|^gemma-[1-3]n?\b|-image|-tts|embedding|transcribe"


def generation_of(name: str) -> tuple[int, int]:
    """Return the version in the name of a model; a name without one counts as the newest."""
    if version := re.match(_GENERATION, re.sub(_LATEST, DEFAULT_MODEL, name)):
        return int(version[1]), int(version[2] or 0)
    return (1, 0) if name.startswith(("gemini-pro", "learnlm")) else (4, 0)


_DEVELOPER_REASONS = (
    "FINISH_REASON_UNSPECIFIED STOP MAX_TOKENS SAFETY RECITATION OTHER LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII "
    "MALFORMED_FUNCTION_CALL IMAGE_SAFETY UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS IMAGE_PROHIBITED_CONTENT "
    "IMAGE_OTHER NO_IMAGE IMAGE_RECITATION"
)
_VERTEX_REASONS = (
    "FINISH_REASON_UNSPECIFIED STOP MAX_TOKENS SAFETY RECITATION OTHER BLOCKLIST PROHIBITED_CONTENT SPII "
    "MALFORMED_FUNCTION_CALL MODEL_ARMOR IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_OTHER "
    "UNEXPECTED_TOOL_CALL NO_IMAGE"
)
FINISH_NUMBERS = {Api.DEVELOPER: tuple(_DEVELOPER_REASONS.split()), Api.VERTEX: tuple(_VERTEX_REASONS.split())}
"""The names for the numbers that a server sends if asked for `enum-encoding=int`; the APIs number them differently."""

_BLOCKED = (
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT "
    "IMAGE_RECITATION"
)
FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.END,
    "MAX_TOKENS": FinishReason.LENGTH,
    "MALFORMED_FUNCTION_CALL": FinishReason.MALFORMED_CALL,
    "UNEXPECTED_TOOL_CALL": FinishReason.UNEXPECTED_CALL,
    "CONTINUATION": FinishReason.CONTINUES,
    **dict.fromkeys(_BLOCKED.split(), FinishReason.BLOCKED),
}
"""What these names mean for a run; any other name is `FinishReason.OTHER`."""

_FUNCTION_NAMES = NameRule(extra=".-", max_chars=MAX_NAME_CHARS)
_PARAMETER_KEYWORDS = (
    "type format description nullable default enum items minItems maxItems properties required minProperties "
    "maxProperties minLength maxLength pattern minimum maximum anyOf"
)
_JSON_SCHEMA_KEYWORDS = (
    "type format description enum items prefixItems minItems maxItems minimum maximum anyOf properties "
    "additionalProperties required"
)
SCHEMA_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
"""The types of a schema as the API writes them, in the order of their numbers."""

GEMINI_PARAMETERS = SchemaDialect(
    # The documented fields, without those that servers reject all the same (additionalProperties, defs, ref) and
    # without title, which makes answers worse.
    keywords=frozenset(_PARAMETER_KEYWORDS.split()),
    types={name.lower(): name for name in SCHEMA_TYPES},
    enum_types=frozenset({"string"}),
    # "only 'enum' and 'date-time' are supported for STRING type"
    formats={
        "string": frozenset({"date-time"}),
        "number": frozenset({"float", "double"}),
        "integer": frozenset({"int32", "int64"}),
    },
    # "type: must be specified when not using one_of, any_of or all_of fields"
    untyped=False,
    nullable=True,
    # "When using any_of, it must be the only field set"
    union_alone=True,
    # "enum[0]: cannot be empty"
    empty_strings=False,
    functions=_FUNCTION_NAMES,
)
"""`functionDeclarations[].parameters`: the OpenAPI subset, and the only one that the Live API accepts."""

GEMINI_JSON_SCHEMA = SchemaDialect(
    keywords=frozenset(_JSON_SCHEMA_KEYWORDS.split()),
    types={name.lower(): name.lower() for name in SCHEMA_TYPES},
    enum_types=frozenset({"string", "number", "integer"}),
    empty_strings=False,
    functions=_FUNCTION_NAMES,
)
"""`functionDeclarations[].parametersJsonSchema`: the JSON Schema that Gemini enforces."""


def profile_of(capabilities: Capabilities) -> ModelProfile:
    """Return the profile of a model with these capabilities."""
    return ModelProfile(
        service="Gemini",
        schema=GEMINI_JSON_SCHEMA,
        supports_tools=capabilities.functions,
        supports_json_with_tools=capabilities.json_with_functions,
    )
