"""`midspan models`: the models that can be named."""

import os
import sys
from argparse import ArgumentParser, Namespace

from midspan.surfaces.cli.exits import say
from midspan.surfaces.cli.interrupts import Stoppable
from midspan.surfaces.cli.report import as_json
from midspan.surfaces.cli.visible import visible

KNOWN = (
    "gemini-3.8-flash",
    "gemini-3.7-flash",
    "gemini-3.6-flash",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.1-flash-lite",
    "gemini-3.1-pro-preview",
    "gemini-4-argon",
    "gemini-4-carbon",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
)
"""Those that call functions, when this version was made."""
_NEEDED = "generateContent"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: Namespace) -> int:
    listed = has_key()
    names = _listed() if listed else list(KNOWN)
    models = [*(f"gemini:{name}" for name in names), "offline"]
    if options.json:
        sys.stdout.write(as_json({"models": models, "source": "api" if listed else "known"}))
        return 0
    if not listed:
        say("no key is set, so these are the models that this version knows; with GEMINI_API_KEY the API is asked")
    sys.stdout.write("".join(f"{visible(name)}\n" for name in models))
    return 0


def has_key() -> bool:
    """Whether the Gemini API can be asked, by the Developer API or by Vertex."""
    from midspan.providers.gemini.credentials import key_from

    return key_from(os.environ) is not None or bool(os.environ.get("GOOGLE_GENAI_USE_VERTEXAI"))


def _listed() -> list[str]:
    from midspan.gemini import AsyncClient

    async def ask() -> list[str]:
        async with AsyncClient() as client:
            models = await client.list_models()
        return [
            (model.name or "").rsplit("/", 1)[-1]
            for model in models
            if model.name and _NEEDED in (model.supported_generation_methods or [_NEEDED])
        ]

    with Stoppable() as loop:
        return loop.run(ask())
