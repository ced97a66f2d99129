"""Checks a request like the server: `check` returns the request, or raises an ApiError in the words of the API."""

from typing import Any

import msgspec

from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.emulator.gemini.contents import check_each, check_size, check_together, count_tokens, has_calls
from midspan.emulator.gemini.errors import ApiError, invalid, invalid_fields
from midspan.emulator.gemini.models import ModelRules
from midspan.emulator.gemini.reading import TOO_DEEP, read
from midspan.emulator.gemini.tools import check_declarations, check_tools, declarations_in, is_set, schema_errors
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import (
    CountTokensRequest,
    GenerateContentRequest,
    GenerationConfig,
    ThinkingConfig,
    ToolConfig,
)

_MIME_TYPES = ("text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")
_BESIDE_CACHE = {
    Api.DEVELOPER: "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
    "tool_config. Proposed fix: move those values to CachedContent from GenerateContent request.",
    Api.VERTEX: "Tool config, tools and system instruction should not be set in the request when using cached content.",
}


def check(
    body: bytes, rules: ModelRules, *, is_streaming: bool = False, strict_signatures: bool = False
) -> GenerateContentRequest:
    """Return the request in a body if the API accepts it."""
    try:
        request = read(GenerateContentRequest, body, rules)
        _check_request(request, rules, is_streaming=is_streaming)
        check_together(request.contents or (), rules, strict_signatures=strict_signatures)
    except RecursionError as error:
        raise invalid(TOO_DEEP) from error
    return request


def _check_request(request: GenerateContentRequest, rules: ModelRules, *, is_streaming: bool) -> None:
    contents, tools = request.contents or (), request.tools or ()
    config = request.generation_config or GenerationConfig()
    check_each(contents, rules.api)
    _check_system_instruction(request, rules)
    _check_ranges(config, rules, is_streaming=is_streaming)
    _check_thinking(config.thinking_config or ThinkingConfig(), rules)
    _check_output(config, rules)
    _check_cached_content(request, rules)
    check_declarations(tools, rules)
    check_tools(tools, request.tool_config or ToolConfig(), rules, is_streaming=is_streaming)
    rejects_functions = config.response_mime_type == "application/json" and not rules.capabilities.json_with_functions
    if rejects_functions and (has_calls(contents) or declarations_in(tools)):
        raise invalid("Function calling with a response mime type: 'application/json' is unsupported")


def _check_system_instruction(request: GenerateContentRequest, rules: ModelRules) -> None:
    instruction = request.system_instruction
    if instruction is None:
        return
    if not rules.capabilities.system_instruction:
        raise invalid(f"Developer instruction is not enabled for models/{rules.name}")
    if not instruction.parts:
        raise invalid_fields([("system_instruction.parts", "parts must not be empty.")], rules.api)


def _check_ranges(config: GenerationConfig, rules: ModelRules, *, is_streaming: bool) -> None:
    api, count = rules.api, config.candidate_count or 1
    if not 0 <= (config.temperature or 0) <= 2:
        if api is Api.VERTEX:
            raise _out_of_range("temperature", f"{config.temperature:g}", "from 0 (inclusive) to 2.0001 (exclusive)")
        raise _invalid_config("temperature", "temperature must be in the range [0.0, 2.0].", api)
    if not 0 <= (config.top_p or 0) <= 1:
        raise _invalid_config("top_p", "top_p must be in the range [0.0, 1.0].", api)
    if config.top_k is not None and config.top_k % 1 and api is Api.DEVELOPER:
        raise invalid(f"Invalid value at 'generation_config.top_k' (TYPE_INT32), {config.top_k}")
    if (config.max_output_tokens or 0) < 0:
        raise _invalid_config("max_output_tokens", "max_output_tokens must be positive.", api)
    if not 1 <= count <= 8:
        if api is Api.VERTEX:
            raise _out_of_range("candidateCount", str(count), "from 1 (inclusive) to 9 (exclusive)")
        raise _invalid_config("candidate_count", "candidate_count must be in the range [1, 8].", api)
    if count > 1 and is_streaming:
        entered = f"Unable to submit request because candidateCount must be 1 but the entered value was {count}."
        raise invalid(entered if api is Api.VERTEX else "Only one candidate can be specified")
    if count > rules.max_candidates:
        raise invalid("Multiple candidates is not enabled for this model")


def _check_thinking(config: ThinkingConfig, rules: ModelRules) -> None:
    levels = rules.capabilities.thinking_levels
    level = config.thinking_level if config.thinking_level != "THINKING_LEVEL_UNSPECIFIED" else None
    if rules.rejects_thinking and (level is not None or config.thinking_budget or config.include_thoughts):
        raise invalid(f"Thinking is not enabled for models/{rules.name}")
    if level is None or not (levels or rules.capabilities.thinking_budget):
        return
    if config.thinking_budget is not None:
        raise invalid("You can only set only one of thinking budget and thinking level.")
    if not levels:
        raise invalid("Thinking level is not supported for this model.")
    if isinstance(level, str) and level.lower() not in levels:
        raise invalid(
            f"Thinking level {level} is not supported for this model. Please retry with other thinking level."
        )


def _check_output(config: GenerationConfig, rules: ModelRules) -> None:
    api = rules.api
    if config.response_mime_type and config.response_mime_type not in _MIME_TYPES:
        allowed = ", ".join(f"`{mime_type}`" for mime_type in _MIME_TYPES)
        raise _invalid_config("response_mime_type", f"allowed mimetypes are {allowed}.", api)
    if config.response_schema is None:
        return
    if is_set(config.response_json_schema):
        raise _invalid_config("response_json_schema", "must not be set when response_schema is set", api)
    errors = list(schema_errors(config.response_schema, "generation_config.response_schema", api))
    if errors:
        raise invalid_fields(errors, api)


def _check_cached_content(request: GenerateContentRequest, rules: ModelRules) -> None:
    if request.cached_content is None:
        return
    if not rules.capabilities.explicit_cache:
        raise invalid(f"CachedContent is not supported for models/{rules.name}")
    if request.system_instruction is not None or request.tools or request.tool_config is not None:
        raise invalid(_BESIDE_CACHE[rules.api])
    if "cachedContents/" not in request.cached_content:
        raise invalid(f"Invalid CachedContent name: {request.cached_content}.")


def _invalid_config(name: str, message: str, api: Api) -> ApiError:
    return invalid_fields([(f"generation_config.{name}", message)], api)


def _out_of_range(name: str, value: str, supported: str) -> ApiError:
    return invalid(
        f"Unable to submit request because it has a {name} value of {value} but the supported range is {supported}. "
        "Update the value and try again."
    )


def count_request_tokens(body: bytes, rules: ModelRules) -> dict[str, Any]:
    """Return the answer to a countTokens request."""
    request = read(CountTokensRequest, body, rules)
    counted = request.generate_content_request or request
    contents = counted.contents or []
    check_each(contents, rules.api)
    check_size(contents, rules.api)
    check_declarations(counted.tools or (), rules)
    tokens = count_tokens([*contents, *([counted.system_instruction] if counted.system_instruction else [])])
    if counted.tools:
        tokens += len(msgspec.json.encode(to_plain(counted.tools))) // CHARACTERS_PER_TOKEN
    document = {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
    if rules.api is Api.VERTEX:
        texts = [part.text or "" for content in contents for part in content.parts or ()]
        document["totalBillableCharacters"] = sum(map(len, texts))
    return document
