"""Cached content: what it forbids beside it, and who has it at all."""

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import GenerateContentRequest

_BESIDE = {
    Api.DEVELOPER: "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
    "tool_config. Proposed fix: move those values to CachedContent from GenerateContent request.",
    Api.VERTEX: "Tool config, tools and system instruction should not be set in the request when using cached content.",
}


def check_caching(request: GenerateContentRequest, family: Family) -> None:
    if request.cached_content is None:
        return
    if not family.capabilities.explicit_cache:
        raise invalid(f"CachedContent is not supported for models/{family.name}")
    if request.system_instruction is not None or request.tools or request.tool_config is not None:
        raise invalid(_BESIDE[family.capabilities.api])
    if "cachedContents/" not in request.cached_content:
        raise invalid(f"Invalid CachedContent name: {request.cached_content}.")
