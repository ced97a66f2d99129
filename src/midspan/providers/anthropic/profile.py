"""The model profile of Claude: which names and schemas it accepts, and how each model thinks."""

import re

from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.dialect import NameRule
from midspan.providers.openai.profile import JSON_SCHEMA
from midspan.providers.provider import ModelProfile

DEFAULT_MODEL = "claude-sonnet-5-5"
KNOWN_MODELS = (
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-opus-4-8",
    "claude-sonnet-4-6",
    "claude-haiku-4-5",
)
KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
TOOLS = replace(JSON_SCHEMA, functions=NameRule(extra="-", max_chars=128, digit_first=True))
OUTPUT = replace(
    TOOLS,
    keywords=frozenset(
        ["type", "title", "description", "enum", "const", "format", "items", "properties", "required", "default",
         "additionalProperties", "anyOf", "$ref", "$defs"]
    ),
    references=False,
    closed=True,
    strict=True,
)  # fmt: skip
"""https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations"""
_NEWEST = (99,)
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")


class ClaudeCapabilities(Struct, frozen=True):
    """What differs between Claude models."""

    budget: bool
    """Accepts a number of tokens to think with."""
    adaptive: bool
    """Decides itself how much to think, and accepts an effort."""
    default_max_tokens: int
    """Sent where the caller gives no `max_tokens`, which the API demands."""


def capabilities_of(model: str) -> ClaudeCapabilities:
    """Return the capabilities of a model by the version in its name. Unknown names count as the newest models."""
    match = _VERSION.search(model)
    version = _NEWEST if match is None else tuple(int(number) for number in match.groups() if number)
    max_tokens = 16_000 if version >= (3, 7) else 8_192 if version >= (3, 5) else 4_096
    return ClaudeCapabilities((3, 7) <= version < (4, 7), version >= (4, 6), max_tokens)


PROFILE = ModelProfile(
    service="Anthropic", schema=TOOLS, output_schema=OUTPUT, output_is_object=True, output_is_strict=True
)
