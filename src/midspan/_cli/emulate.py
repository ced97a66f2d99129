"""`midspan emulate`: a local Gemini until Ctrl-C."""

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from midspan._cli.exits import say
from midspan._cli.interrupts import Stoppable
from midspan.errors import ConfigError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--port", metavar="N", type=_port, default=0, help="where to listen; any free port if left out")
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="on which address of this machine")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--script", metavar="FILE", help="answers, written in TOML")
    source.add_argument("-m", "--model", metavar="M", help="a model that gives the answers, such as offline")
    parser.add_argument("--faults", metavar="SEED|PLAN", help="a number, or faults: 0:status_503 2:stall(chunk=1)")
    parser.add_argument("--api-key", metavar="K", help="the only key that is accepted")
    parser.add_argument("--models", metavar="current|NAME,…", help="the only models there are; current: none retired")


def run(options: Namespace) -> int:
    server = _server(options)
    with Stoppable() as loop:
        try:
            loop.run(_serve(server))
        except KeyboardInterrupt:
            say("stopped")
    return 0


def _server(options: Namespace) -> Any:
    from midspan.emulator import FaultPlan, LocalGemini
    from midspan.providers.registry import provider_of

    faults = options.faults
    if faults is not None and faults.isdecimal():
        faults = FaultPlan.random(int(faults))
        say(f"faults: {faults}")
    return LocalGemini(
        options.script,
        model=None if options.model is None else provider_of(options.model),
        faults=faults,
        api_key=options.api_key,
        models=_models(options.models),
        host=options.host,
        port=options.port,
    )


def _models(given: str | None) -> list[str] | None:
    if given is None:
        return None
    if given == "current":
        from midspan.providers.gemini.family import FAMILY

        return list(FAMILY.known_models)
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise ConfigError("--models is current, or names with commas between them")
    return names


async def _serve(server: Any) -> None:
    async with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        say(f"a local Gemini listens; point a client at it with GOOGLE_GEMINI_BASE_URL={server.url}, Ctrl-C ends it")
        await asyncio.Event().wait()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise ArgumentTypeError(f"{text!r} is no port; give a number up to 65535, or 0 for any that is free")
    return int(text)
