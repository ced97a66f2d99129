"""The services that speak the Chat Completions API, and in what they differ."""

import re
from typing import Literal

from msgspec import Struct

from midspan._schema.dialect import NameRule, SchemaDialect
from midspan.providers.provider import ModelProfile

NAMES = NameRule(extra="-", digit_first=True)
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
JSON_SCHEMA = SchemaDialect(
    keywords=frozenset(
        [
            "type", "title", "description", "default", "examples", "enum", "const", "format", "pattern",
            "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
            "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains",
            "properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
            "anyOf", "oneOf", "allOf", "not", "$ref", "$defs",
        ]
    ),
    types={name: name for name in _TYPES},
    enum_types=frozenset(_TYPES),
    references=True,
    functions=NAMES,
    properties=NameRule(extra=".-", digit_first=True),
)  # fmt: skip
"""JSON Schema nearly as it is, for services that only show it to the model."""
STRICT = SchemaDialect(
    keywords=frozenset(
        [
            "type", "title", "description", "enum", "const", "format", "pattern", "minimum", "maximum",
            "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "minItems", "maxItems", "properties",
            "required", "additionalProperties", "anyOf", "$ref", "$defs",
        ]
    ),
    types={name: name for name in _TYPES},
    enum_types=frozenset(_TYPES),
    references=True,
    closed=True,
    all_required=True,
    strict=True,
    functions=NAMES,
    properties=NameRule(extra=".-", digit_first=True),
)  # fmt: skip
"""https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"""
_ANY_ID = re.compile(r"\S+")
_OPENAI_ID = re.compile(r"\S{1,40}")
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


class Preset(Struct, frozen=True, cache_hash=True):
    """One service: where it is, how it is authenticated, and what it accepts beyond or below OpenAI's API."""

    name: str
    """What stands before the colon in `name:model`. It is also the origin of what only this service understands."""
    service: str
    """The name in messages."""
    base_url: str
    key_variables: tuple[str, ...] = ()
    """Environment variables with the key."""
    url_variable: str | None = None
    """The environment variable with another base URL."""
    needs_key: bool = True
    is_alternative: bool = False
    """It shares its key with another provider, which is chosen if only the key is given."""
    default_model: str | None = None
    prefixes: tuple[str, ...] = ()
    """Model names that start with one of these belong to this service."""
    message_fields: tuple[str, ...] = ()
    """Fields of the model's messages, beyond those of OpenAI, that the service wants back: its reasoning."""
    call_fields: tuple[str, ...] = ()
    """Fields of calls, beyond those of OpenAI, that the service wants back."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    top_k: bool = False
    """Accepts `top_k`, which OpenAI does not have."""
    seed_field: str = "seed"
    json_with_tools: bool = True
    """Answers in JSON of a given schema although tools are declared."""
    json_schema: bool = True
    """Accepts the schema of the answer; otherwise the schema is part of the system prompt."""
    allowed_tools: bool = False
    """Accepts a list of tools in `tool_choice`."""
    strict: bool = False
    """Enforces the schemas of tools and answers, where they can be written in the strict form."""
    media_in_results: bool = False
    """Accepts images in the result of a call."""
    document_urls: bool = False
    """Accepts files as `document_url`."""
    accepts_invalid_arguments: bool = False
    """Accepts calls of the history whose arguments are not JSON; others parse them, and reject the request."""
    id_pattern: re.Pattern[str] = _ANY_ID
    """Valid ids of calls."""


_REASONING = ("reasoning", "reasoning_content", "reasoning_details")

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("openai", "OpenAI", "https://api.openai.com/v1", ("OPENAI_API_KEY",), "OPENAI_BASE_URL",
               default_model="gpt-5.5", prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4"),
               max_tokens_field="max_completion_tokens", allowed_tools=True, strict=True, id_pattern=_OPENAI_ID,
               accepts_invalid_arguments=True),
        Preset("azure", "Azure OpenAI", "", ("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT",
               default_model="gpt-5.5", max_tokens_field="max_completion_tokens", strict=True, id_pattern=_OPENAI_ID,
               accepts_invalid_arguments=True),
        Preset("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",),
               default_model="google/gemini-3.8-flash", message_fields=_REASONING, top_k=True),
        Preset("xai", "xAI", "https://api.x.ai/v1", ("XAI_API_KEY",), default_model="grok-4", prefixes=("grok-",),
               message_fields=("reasoning_content",)),
        Preset("groq", "Groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",),
               default_model="openai/gpt-oss-120b", message_fields=("reasoning",),
               max_tokens_field="max_completion_tokens", json_with_tools=False),
        Preset("mistral", "Mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",),
               default_model="mistral-large-latest",
               prefixes=("mistral-", "magistral-", "ministral-", "codestral-", "devstral-", "pixtral-"),
               message_fields=("prefix",), document_urls=True, seed_field="random_seed", id_pattern=_MISTRAL_ID),
        Preset("deepseek", "DeepSeek", "https://api.deepseek.com", ("DEEPSEEK_API_KEY",),
               default_model="deepseek-chat", prefixes=("deepseek-",), message_fields=("reasoning_content",),
               json_schema=False),
        Preset("together", "Together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",),
               default_model="meta-llama/Llama-3.3-70B-Instruct-Turbo", message_fields=_REASONING, top_k=True),
        Preset("google-openai", "Gemini (OpenAI-compatible)",
               "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
               is_alternative=True, default_model="gemini-3.8-flash", call_fields=("extra_content",),
               message_fields=("extra_content",)),
        Preset("ollama", "Ollama", "http://127.0.0.1:11434/v1", ("OLLAMA_API_KEY",), "OLLAMA_HOST", needs_key=False,
               default_model="qwen3", message_fields=("reasoning",)),
        Preset("localai", "LocalAI", "http://127.0.0.1:8080/v1", ("LOCALAI_API_KEY",), "LOCALAI_BASE_URL",
               needs_key=False, top_k=True),
        Preset("vllm", "vLLM", "http://127.0.0.1:8000/v1", ("VLLM_API_KEY",), "VLLM_BASE_URL", needs_key=False,
               top_k=True, message_fields=_REASONING),
        Preset("llamacpp", "llama.cpp", "http://127.0.0.1:8080/v1", ("LLAMACPP_API_KEY",), "LLAMACPP_BASE_URL",
               needs_key=False, top_k=True, message_fields=("reasoning_content",)),
    )
}  # fmt: skip
"""The services by name. Others are reached with `OpenAI(model, base_url=…)`."""


def profile_of(preset: Preset) -> ModelProfile:
    """Return the profile of the models of a service."""
    schema = STRICT if preset.strict else JSON_SCHEMA
    return ModelProfile(
        service=preset.service,
        schema=schema,
        output_is_object=True,
        supports_json_with_tools=preset.json_with_tools,
    )
