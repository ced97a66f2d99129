"""The model of the terminal where none is configured: the offline model, announced before anything else."""

from msgspec.structs import replace

from midspan.providers.registry import has_default_model
from midspan.surfaces.cli.exits import say
from midspan.surfaces.cli.settings import Settings


def with_fallback(settings: Settings, *, yes: bool) -> Settings:
    """Use the offline model if no model is named and no key is set; with read-only tools only, unless `yes`."""
    if settings.model is not None or has_default_model():
        return settings
    tools = "" if yes else ", with read-only tools only (--yes allows all tools)"
    say(
        f"no model is named and no key is set, so the offline model answers{tools}. "
        "For a language model set GEMINI_API_KEY or use --model."
    )
    return replace(settings, model="offline", read_only=not yes)
