"""The model of the terminal if none is configured: one that needs no credentials, announced before anything else."""

from msgspec.structs import replace

from midspan._cli.exits import say
from midspan._cli.settings import Settings
from midspan.providers.registry import credential_variables, default_family, fallback_family


def with_fallback(settings: Settings, *, yes: bool) -> Settings:
    """Use the fallback model if no model is named and no key is set; with read-only tools only, unless `yes`."""
    if settings.model is not None or default_family() is not None:
        return settings
    name = fallback_family().name
    tools = "" if yes else ", with read-only tools only (--yes allows all tools)"
    say(
        f"no model is named and no key is set, so the {name} model answers{tools}. "
        f"For a language model set {credential_variables()}, or use --model."
    )
    return replace(settings, model=name, read_only=not yes)
