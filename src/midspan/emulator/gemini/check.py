"""Checks a request like the server: `check` returns the request, or raises an ApiError in the words of the API."""

from midspan.emulator.gemini.contents import check_each, check_together, has_calls
from midspan.emulator.gemini.errors import ApiError, invalid, invalid_fields
from midspan.emulator.gemini.models import Family, Target
from midspan.emulator.gemini.reading import TOO_DEEP, read
from midspan.emulator.gemini.tools import check_declarations, check_tools, declarations_in, is_set, schema_errors
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import GenerateContentRequest, GenerationConfig, ThinkingConfig, ToolConfig

_MIME_TYPES = ("text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")
_BESIDE_CACHE = {
    Api.DEVELOPER: "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
    "tool_config. Proposed fix: move those values to CachedContent from GenerateContent request.",
    Api.VERTEX: "Tool config, tools and system instruction should not be set in the request when using cached content.",
}


def check(body: bytes, target: Target, *, strict_signatures: bool = False) -> GenerateContentRequest:
    """Return the request in a body if the API accepts it."""
    try:
        request = read(GenerateContentRequest, body, target)
        _check_request(request, target, strict_signatures=strict_signatures)
    except RecursionError as error:
        raise invalid(TOO_DEEP) from error
    return request


def _check_request(request: GenerateContentRequest, target: Target, *, strict_signatures: bool) -> None:
    family = target.family
    contents, tools = request.contents or (), request.tools or ()
    config = request.generation_config or GenerationConfig()
    check_each(contents, target.api)
    _check_system_instruction(request, family)
    _check_ranges(config, target)
    _check_thinking(config.thinking_config or ThinkingConfig(), family)
    _check_output(config, family)
    _check_cached_content(request, family)
    check_declarations(tools, family)
    check_tools(tools, request.tool_config or ToolConfig(), family, is_streaming=target.is_streaming)
    rejects_functions = config.response_mime_type == "application/json" and not family.capabilities.json_with_functions
    if rejects_functions and (has_calls(contents) or declarations_in(tools)):
        raise invalid("Function calling with a response mime type: 'application/json' is unsupported")
    check_together(contents, family, strict_signatures=strict_signatures)


def _check_system_instruction(request: GenerateContentRequest, family: Family) -> None:
    instruction = request.system_instruction
    if instruction is None:
        return
    if not family.capabilities.system_instruction:
        raise invalid(f"Developer instruction is not enabled for models/{family.name}")
    if not instruction.parts:
        raise invalid_fields([("system_instruction.parts", "parts must not be empty.")], family.capabilities.api)


def _check_ranges(config: GenerationConfig, target: Target) -> None:
    api, count = target.api, config.candidate_count or 1
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
    if count > 1 and target.is_streaming:
        entered = f"Unable to submit request because candidateCount must be 1 but the entered value was {count}."
        raise invalid(entered if api is Api.VERTEX else "Only one candidate can be specified")
    if count > target.family.max_candidates:
        raise invalid("Multiple candidates is not enabled for this model")


def _check_thinking(config: ThinkingConfig, family: Family) -> None:
    levels = family.capabilities.thinking_levels
    level = config.thinking_level if config.thinking_level != "THINKING_LEVEL_UNSPECIFIED" else None
    if family.rejects_thinking and (level is not None or config.thinking_budget or config.include_thoughts):
        raise invalid(f"Thinking is not enabled for models/{family.name}")
    if level is None or not (levels or family.capabilities.thinking_budget):
        return
    if config.thinking_budget is not None:
        raise invalid("You can only set only one of thinking budget and thinking level.")
    if not levels:
        raise invalid("Thinking level is not supported for this model.")
    if isinstance(level, str) and level.lower() not in levels:
        raise invalid(
            f"Thinking level {level} is not supported for this model. Please retry with other thinking level."
        )


def _check_output(config: GenerationConfig, family: Family) -> None:
    api = family.capabilities.api
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


def _check_cached_content(request: GenerateContentRequest, family: Family) -> None:
    if request.cached_content is None:
        return
    if not family.capabilities.explicit_cache:
        raise invalid(f"CachedContent is not supported for models/{family.name}")
    if request.system_instruction is not None or request.tools or request.tool_config is not None:
        raise invalid(_BESIDE_CACHE[family.capabilities.api])
    if "cachedContents/" not in request.cached_content:
        raise invalid(f"Invalid CachedContent name: {request.cached_content}.")


def _invalid_config(name: str, message: str, api: Api) -> ApiError:
    return invalid_fields([(f"generation_config.{name}", message)], api)


def _out_of_range(name: str, value: str, supported: str) -> ApiError:
    return invalid(
        f"Unable to submit request because it has a {name} value of {value} but the supported range is {supported}. "
        "Update the value and try again."
    )
