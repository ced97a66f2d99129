"""`midspan doctor`: whether everything is in place, in plain words."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, NamedTuple

from midspan.errors import AuthenticationError, ConfigError, CredentialsError, MidspanError
from midspan.surfaces.cli.directories import config_directory, private_directory, state_directory
from midspan.surfaces.cli.exits import sentence_of
from midspan.surfaces.cli.interrupts import Stoppable
from midspan.surfaces.cli.settings import read_settings, settings_of
from midspan.surfaces.cli.visible import fitted
from midspan.version import VERSION

_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_NEEDED = ("msgspec", "httptools", "jsonschema_rs", "docstring_parser")
_EXTRAS = {"cli": ("rich", "prompt_toolkit")}
_OLDEST = (3, 11)
_SECONDS = 5.0


class Check(NamedTuple):
    """One thing that was looked at; only a problem makes the exit code 1."""

    state: Literal["ok", "note", "problem"]
    words: str


def add_arguments(parser: ArgumentParser) -> None:
    """It takes nothing of its own."""


def run(_options: Namespace) -> int:
    worst = 0
    for check in _checks():
        sys.stdout.write(fitted(f"{check.state:<8}{check.words}", sys.stdout, indent=" " * 8))
        sys.stdout.flush()  # the network may take a while
        worst |= check.state == "problem"
    sys.stdout.write("something has to be done first\n" if worst else "all is well\n")
    return int(worst)


def _checks() -> Iterator[Check]:
    yield _python()
    yield from _packages()
    yield _settings()
    yield _state()
    yield _tools()
    yield from _model()
    yield _weather()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST:
        return Check("problem", f"Python is {version}; Midspan {VERSION} needs {_OLDEST[0]}.{_OLDEST[1]} or newer")
    return Check("ok", f"Midspan {VERSION} on Python {version}")


def _packages() -> Iterator[Check]:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        yield Check("problem", f"missing packages: {', '.join(missing)}; install midspan again")
    for extra, packages in _EXTRAS.items():
        lacking = [name for name in packages if find_spec(name) is None]
        if lacking:
            yield Check("note", f"the extra {extra} is not installed; if you need it: pip install 'midspan[{extra}]'")
        else:
            yield Check("ok", f"the extra {extra} is installed")


def _settings() -> Check:
    path = config_directory() / "config.toml"
    try:
        read_settings(path)
    except ConfigError as error:
        return Check("problem", sentence_of(error))
    return Check("ok", f"the settings in {path} are right" if path.exists() else f"there are no settings in {path}")


def _state() -> Check:
    try:
        folder = private_directory(state_directory())
    except ConfigError as error:
        return Check("problem", sentence_of(error))
    if not os.access(folder, os.W_OK):
        return Check("problem", f"nothing can be kept in {folder}: it may not be written to")
    return Check("ok", f"conversations are kept in {folder}")


def _tools() -> Check:
    """Whether those that the environment or the settings name can be had."""
    from midspan.surfaces.cli.tool_files import tools_of
    from midspan.tools.merge import source_of

    try:
        named = settings_of(_NO_FLAGS).tools
    except ConfigError:
        return Check("note", "which tools there are cannot be told before the settings are right")
    try:
        with Stoppable() as loop:
            count = len(loop.run(source_of(tools_of(named)).list_tools()).tools)
    except MidspanError as error:
        return Check("problem", sentence_of(error))
    whose = "the ready ones" if named is None else f"from {', '.join(named) or 'nowhere'}"
    return Check("ok", f"there {'is 1 tool' if count == 1 else f'are {count} tools'}, {whose}")


_NO_FLAGS = Namespace(model=None, tools=None, no_tools=False, system=None, max_turns=None)


def _model() -> Iterator[Check]:
    """The name; the key, which is never shown, and whether the API takes it."""
    named = os.environ.get("MIDSPAN_MODEL") or _named_in_settings()
    if named and (fault := _fault_of_name(named)):
        yield Check("problem", fault)
    keys = [name for name in _KEYS if os.environ.get(name, "").strip()]
    if keys or os.environ.get("GOOGLE_GENAI_USE_VERTEXAI"):
        yield Check("ok", f"there is a key in {' and in '.join(keys)}" if keys else "GOOGLE_GENAI_USE_VERTEXAI is set")
        yield _gemini()
        return
    if named and not named.startswith("offline"):
        yield Check("problem", f"the model is to be {named}, but neither {' nor '.join(_KEYS)} is set")
    else:
        yield Check("note", f"neither {' nor '.join(_KEYS)} is set, so the offline model answers")
    yield _address()


def _fault_of_name(name: str) -> str | None:
    from midspan.providers.registry import provider_of

    try:
        provider_of(name)
    except CredentialsError:
        return None  # which is told of the key
    except ConfigError as error:
        return f"the model: {sentence_of(error)}"
    return None


def _named_in_settings() -> str | None:
    try:
        return read_settings(config_directory() / "config.toml").model
    except ConfigError:
        return None  # which was told before


def _address() -> Check:
    from midspan.providers.gemini.endpoint import endpoint

    try:
        address = endpoint().base_url
    except ConfigError as error:
        return Check("problem", sentence_of(error))
    word = "can" if _reachable(address) else "cannot"
    return Check("note", f"{address} {word} be reached; it is asked only where there is a key")


def _gemini() -> Check:
    from midspan.gemini import AsyncClient
    from midspan.http.messages import origin_of
    from midspan.http.retry import RetryPolicy
    from midspan.providers.gemini.endpoint import endpoint

    async def ask() -> int:
        import asyncio

        async with asyncio.timeout(_SECONDS), AsyncClient(retry=RetryPolicy(max_attempts=1)) as client:
            return len(await client.list_models())

    try:
        where = origin_of(endpoint().base_url)
        with Stoppable() as loop:
            count = loop.run(ask())
    except AuthenticationError:
        return Check("problem", f"{where} does not accept the key; is all of it there?")
    except TimeoutError:
        return Check("problem", f"{where} did not answer within {_SECONDS:g} seconds")
    except MidspanError as error:
        return Check("problem", f"the Gemini API cannot be asked: {sentence_of(error)}")
    return Check("ok", f"{where} answers, takes the key and has {count} models")


def _weather() -> Check:
    address = os.environ.get("MIDSPAN_WEATHER_URL") or "https://wttr.in"
    if _reachable(address):
        return Check("ok", f"{address} can be reached, which the tool get_weather asks")
    return Check("note", f"{address} cannot be reached, so the tool get_weather has no answers")


def _reachable(address: str) -> bool:
    """Whether somebody listens there, or where the way there begins."""
    import socket
    from urllib.parse import urlsplit

    from midspan.http.environment import Proxies

    try:
        parts = urlsplit(Proxies().proxy_for(address) or address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), _SECONDS):
            return True
    except (OSError, ValueError):  # ConfigError, of a proxy that cannot be used, is one
        return False
