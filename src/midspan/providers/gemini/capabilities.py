"""What each model and each of the two APIs can do and how it wants to be spoken to: the one place for such facts.

A model that we do not know is taken for one of the newest.
"""

import re
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from midspan._types.exchange import FinishReason
from midspan._types.specs import ThinkingLevel

DEFAULT_MODEL = "gemini-3.8-flash"
LARGEST_REQUEST = 100 * 1024 * 1024
"""How many bytes a request may have, 20 MB until January 2026; a larger file has to be uploaded.

https://blog.google/innovation-and-ai/technology/developers-tools/gemini-api-new-file-limits
"""
LARGEST_FILE = LARGEST_REQUEST * 3 // 4
"""In a request it is base64, which adds a third."""


class Api(StrEnum):
    DEVELOPER = "developer"
    VERTEX = "vertex"


class Capabilities(Struct, frozen=True, dict=True, cache_hash=True):
    """One model behind one API. Replace a field where your endpoint differs from what we know."""

    api: Api = Api.DEVELOPER
    functions: bool = True
    """Declares and calls functions natively."""
    system_instruction: bool = True
    call_ids: bool = True
    """Takes back the ids that it gave to calls. Never does it want an id that it did not give."""
    signatures: bool = True
    """Refuses its own calls of the current turn if they come back without their thought signature."""
    media_in_results: bool = True
    builtin_with_functions: bool = True
    json_with_functions: bool = True
    """Structured output and function declarations in the same request."""
    server_side_calls: bool = True
    """Wants to be told that calls of built-in tools shall be shown, where functions are declared beside them."""
    server_side_parts: bool = True
    """Knows the parts in which such calls are shown, and takes them back."""
    thinking_levels: tuple[ThinkingLevel, ...] = ("low", "medium", "high")
    """Empty where thinking is counted in tokens, or where there is none."""
    thinking_budget: bool = False
    sampling: bool = True
    """Temperature, top-p and top-k have an effect."""
    explicit_cache: bool = True
    streamed_arguments: bool = False
    result_key: str = "result"
    """Where a result that is no object is put, because the API takes nothing but objects."""

    @cached_property
    def contents_dialect(self) -> str:
        """Names everything here that changes how a content is written, so that the bytes can be kept by it."""
        return (
            f"gemini ids={self.call_ids:d} signatures={self.signatures:d} media={self.media_in_results:d}"
            f" server={self.server_side_parts:d} key={self.result_key}"
        )


FINISH_NUMBERS: dict[Api, tuple[str, ...]] = {
    Api.DEVELOPER: (
        "FINISH_REASON_UNSPECIFIED",
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "OTHER",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MALFORMED_FUNCTION_CALL",
        "IMAGE_SAFETY",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_OTHER",
        "NO_IMAGE",
        "IMAGE_RECITATION",
    ),
    Api.VERTEX: (
        "FINISH_REASON_UNSPECIFIED",
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MALFORMED_FUNCTION_CALL",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
        "UNEXPECTED_TOOL_CALL",
        "NO_IMAGE",
    ),
}
"""The words behind the numbers that a server sends if asked for `enum-encoding=int`; the APIs count differently."""

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.END,
    "MAX_TOKENS": FinishReason.LENGTH,
    "MALFORMED_FUNCTION_CALL": FinishReason.MALFORMED_CALL,
    "UNEXPECTED_TOOL_CALL": FinishReason.UNEXPECTED_CALL,
    "CONTINUATION": FinishReason.CONTINUES,
    "SAFETY": FinishReason.BLOCKED,
    "RECITATION": FinishReason.BLOCKED,
    "LANGUAGE": FinishReason.BLOCKED,
    "BLOCKLIST": FinishReason.BLOCKED,
    "PROHIBITED_CONTENT": FinishReason.BLOCKED,
    "SPII": FinishReason.BLOCKED,
    "MODEL_ARMOR": FinishReason.BLOCKED,
    "IMAGE_SAFETY": FinishReason.BLOCKED,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.BLOCKED,
    "IMAGE_RECITATION": FinishReason.BLOCKED,
}
"""What the API's words mean for a run; any other word is `FinishReason.OTHER`."""


def capabilities_of(model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> Capabilities:
    """What is known of a model, by its id with or without `models/` or a publisher's path before it."""
    name = model.rsplit("/", 1)[-1].lower()
    generation = generation_of(name)
    third = generation >= (3, 0)
    gemma = name.startswith("gemma")
    levels, budget = _thinking(name, generation)
    return Capabilities(
        api=api,
        functions=not gemma and not _SPEECHLESS.search(name),
        system_instruction=not (gemma and generation < (4, 0)),
        # Vertex v1 answers `Unknown name "id"`: https://github.com/langchain-ai/langchainjs/issues/11209
        call_ids=not (api is Api.VERTEX and version == "v1"),
        signatures=third and not gemma,
        media_in_results=third,
        builtin_with_functions=third,
        json_with_functions=third,
        server_side_calls=third and api is Api.DEVELOPER,
        server_side_parts=api is Api.DEVELOPER,
        thinking_levels=levels,
        thinking_budget=budget,
        # A tuned model or an endpoint on Vertex may be of any generation, and the newest only ignores these settings.
        sampling=generation < (4, 0) or gemma or not _GENERATION.match(name),
        explicit_cache=generation < (4, 0) and not gemma,
        streamed_arguments=third and api is Api.VERTEX,
    )


def successor_of(model: str) -> str | None:
    """The model to use instead of one that was shut down; None for all others."""
    name = model.rsplit("/", 1)[-1].lower()
    if not _RETIRED.match(name):
        return None
    if "lite" in name or "8b" in name:
        return "gemini-3.5-flash-lite"
    return "gemini-3.1-pro-preview" if "pro" in name else DEFAULT_MODEL


_NEWEST = (4, 0)
_OLDEST = (1, 0)
_GENERATION = re.compile(r"(?:gemini|gemma)-(\d+)(?:\.(\d+))?(?![\d.])")
_LATEST = re.compile(r"gemini-(flash|flash-lite|pro)-latest$")
_LATEST_GENERATION = (3, 8)
_RETIRED = re.compile(r"gemini-(1\.0|1\.5|2\.0)\b|gemini-(pro|pro-vision|ultra)$|(chat|text)-bison")
_SPEECHLESS = re.compile(r"-image\b|-image-|-tts\b|-tts-|transcribe|embedding|live-translate|^imagen|^veo")
_WITH_MINIMAL = re.compile(r"gemini-3(\.[1-6])?-flash")
_NOT_THINKING = re.compile(r"^gemini-(1\.|2\.0)|^gemma-[1-3]n?\b|-image|-tts|embedding|transcribe")


def generation_of(name: str) -> tuple[int, int]:
    """The number in a model's bare name; one that we cannot tell is taken for the newest."""
    if _LATEST.match(name):
        return _LATEST_GENERATION
    found = _GENERATION.match(name)
    if found:
        return int(found[1]), int(found[2] or 0)
    return _OLDEST if name.startswith(("gemini-pro", "learnlm")) else _NEWEST


def _thinking(name: str, generation: tuple[int, int]) -> tuple[tuple[ThinkingLevel, ...], bool]:
    if _NOT_THINKING.search(name):
        return (), False
    if generation < (3, 0):
        return (), True
    if _WITH_MINIMAL.match(name):
        return ("minimal", "low", "medium", "high"), False
    return ("low", "medium", "high"), False
