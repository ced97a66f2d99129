"""How the model shall write: ranges, thinking, and structured answers."""

from msgspec import UNSET

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.emulator.rules.fields import fields_refused
from midspan.emulator.rules.schemas import schema_faults
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import GenerationConfig, ThinkingConfig

_MIME_TYPES = ("", "text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")


def check_generation(config: GenerationConfig, family: Family) -> None:
    _check_ranges(config, family)
    if config.thinking_config is not None:
        _check_thinking(config.thinking_config, family)
    _check_output(config, family)


def check_output_beside_calls(config: GenerationConfig | None, family: Family) -> None:
    """For requests that declare functions, or whose history holds calls."""
    is_json = config is not None and config.response_mime_type == "application/json"
    if is_json and not family.capabilities.json_with_functions:
        raise invalid("Function calling with a response mime type: 'application/json' is unsupported")


def _check_ranges(config: GenerationConfig, family: Family) -> None:
    vertex = family.capabilities.api is Api.VERTEX
    if config.temperature is not None and not 0 <= config.temperature <= 2:
        if vertex:
            raise invalid(
                f"Unable to submit request because it has a temperature value of {config.temperature:g} but the "
                "supported range is from 0 (inclusive) to 2.0001 (exclusive). Update the value and try again."
            )
        raise _field("temperature", "temperature must be in the range [0.0, 2.0].", family)
    if config.top_p is not None and not 0 <= config.top_p <= 1:
        raise _field("top_p", "top_p must be in the range [0.0, 1.0].", family)
    if config.top_k is not None and config.top_k != config.top_k // 1 and not vertex:
        raise invalid(f"Invalid value at 'generation_config.top_k' (TYPE_INT32), {config.top_k}")
    if config.max_output_tokens is not None and config.max_output_tokens < 0:
        raise _field("max_output_tokens", "max_output_tokens must be positive.", family)
    if config.candidate_count is not None and not 0 <= config.candidate_count <= 8:
        raise _field("candidate_count", "candidate_count must be in the range [1, 8].", family)


def _check_thinking(config: ThinkingConfig, family: Family) -> None:
    levels, budgets = family.capabilities.thinking_levels, family.capabilities.thinking_budget
    if not levels and not budgets and not family.refuses_thinking:
        return
    level = config.thinking_level if config.thinking_level != "THINKING_LEVEL_UNSPECIFIED" else None
    if not levels and not budgets:
        if level is not None or config.thinking_budget or config.include_thoughts:
            raise invalid(
                "Unable to submit request because thinking is not supported by this model."
                if family.capabilities.api is Api.VERTEX
                else f"Thinking is not enabled for models/{family.name}"
            )
        return
    if level is None:
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
    mime_type = config.response_mime_type
    if mime_type is not None and mime_type not in _MIME_TYPES:
        listed = ", ".join(f"`{one}`" for one in _MIME_TYPES[1:-1])
        words = f"allowed mimetypes are {listed} and `{_MIME_TYPES[-1]}`."
        raise _field("response_mime_type", words, family)
    json_schema = config.response_json_schema is not UNSET and config.response_json_schema is not None
    if config.response_schema is not None and json_schema:
        raise _field("response_json_schema", "must not be set when response_schema is set", family)
    if config.response_schema is not None:
        faults = list(
            schema_faults(config.response_schema, "generation_config.response_schema", family.capabilities.api)
        )
        if faults:
            raise fields_refused(faults, family.capabilities.api)


def _field(name: str, words: str, family: Family) -> Exception:
    return fields_refused([(f"generation_config.{name}", words)], family.capabilities.api)
