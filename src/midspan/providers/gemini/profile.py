"""The model profile of Gemini: which names and schemas it accepts, and what each model can do."""

from typing import Literal

from midspan._schema.dialects.dialect import NameRule, SchemaDialect
from midspan.providers.gemini.capabilities import MAX_NAME_CHARS, Capabilities
from midspan.providers.provider import ModelProfile

_FUNCTION_NAMES = NameRule(extra=".-", max_chars=MAX_NAME_CHARS)
_PARAMETER_KEYWORDS = (
    "type format description nullable default enum items minItems maxItems properties required minProperties "
    "maxProperties minLength maxLength pattern minimum maximum anyOf"
)
_JSON_SCHEMA_KEYWORDS = (
    "type format description enum items prefixItems minItems maxItems minimum maximum anyOf properties "
    "additionalProperties required"
)
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")

GEMINI_PARAMETERS = SchemaDialect(
    name="gemini parameters",
    # The documented fields, without those that servers reject all the same (additionalProperties, defs, ref) and
    # without title, which makes answers worse.
    keywords=frozenset(_PARAMETER_KEYWORDS.split()),
    types={name: name.upper() for name in _TYPES},
    enum_types=frozenset({"string"}),
    # «only 'enum' and 'date-time' are supported for STRING type»
    formats={
        "string": frozenset({"date-time"}),
        "number": frozenset({"float", "double"}),
        "integer": frozenset({"int32", "int64"}),
    },
    # «type: must be specified when not using one_of, any_of or all_of fields»
    untyped=False,
    nullable=True,
    # «When using any_of, it must be the only field set»
    union_alone=True,
    # «enum[0]: cannot be empty»
    empty_strings=False,
    functions=_FUNCTION_NAMES,
)
"""`functionDeclarations[].parameters`: the OpenAPI subset, and the only one that the Live API accepts."""

GEMINI_JSON_SCHEMA = SchemaDialect(
    name="gemini json schema",
    keywords=frozenset(_JSON_SCHEMA_KEYWORDS.split()),
    types={name: name for name in _TYPES},
    enum_types=frozenset({"string", "number", "integer"}),
    empty_strings=False,
    functions=_FUNCTION_NAMES,
)
"""`functionDeclarations[].parametersJsonSchema`: the JSON Schema that Gemini enforces."""


def profile_of(capabilities: Capabilities) -> ModelProfile:
    """Return the profile of a model with these capabilities."""
    reasoning: tuple[Literal["level", "budget"], ...] = ()
    if capabilities.thinking_levels or capabilities.thinking_budget:
        reasoning = ("level",) if capabilities.thinking_levels else ("budget",)
    return ModelProfile(
        service="Gemini",
        schema=GEMINI_JSON_SCHEMA,
        supports_tools=capabilities.functions,
        supports_json_with_tools=capabilities.json_with_functions,
        media_in_results=capabilities.media_in_results,
        reasoning=reasoning,
    )
