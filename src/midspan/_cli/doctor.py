"""`midspan doctor`: whether everything is in place, in plain words."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.util import find_spec

from midspan._cli.directories import config_directory, private_directory, state_directory
from midspan._cli.exits import sentence_of
from midspan._cli.interrupts import Stoppable
from midspan._cli.settings import read_settings, settings_of
from midspan._cli.visible import fitted
from midspan._version import VERSION
from midspan.errors import ConfigError, MidspanError
from midspan.providers.family import HealthCheck

_NEEDED = ("msgspec", "httptools", "jsonschema_rs", "docstring_parser")
_EXTRAS = {"cli": ("rich", "prompt_toolkit")}
_OLDEST = (3, 11)
_SECONDS = 5.0


def add_arguments(parser: ArgumentParser) -> None:
    """It takes nothing of its own."""


def run(_options: Namespace) -> int:
    worst = 0
    for check in _checks():
        sys.stdout.write(fitted(f"{check.state:<8}{check.message}", sys.stdout, indent=" " * 8))
        sys.stdout.flush()  # the network may take a while
        worst |= check.state == "problem"
    sys.stdout.write("something has to be done first\n" if worst else "all is well\n")
    return int(worst)


def _checks() -> Iterator[HealthCheck]:
    yield _python()
    yield from _packages()
    yield _settings()
    yield _state()
    yield _tools()
    yield from _models()
    yield _weather()


def _python() -> HealthCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST:
        return HealthCheck(
            "problem", f"Python is {version}; Midspan {VERSION} needs {_OLDEST[0]}.{_OLDEST[1]} or newer"
        )
    return HealthCheck("ok", f"Midspan {VERSION} on Python {version}")


def _packages() -> Iterator[HealthCheck]:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        yield HealthCheck("problem", f"missing packages: {', '.join(missing)}; install midspan again")
    for extra, packages in _EXTRAS.items():
        lacking = [name for name in packages if find_spec(name) is None]
        if lacking:
            yield HealthCheck(
                "note", f"the extra {extra} is not installed; if you need it: pip install 'midspan[{extra}]'"
            )
        else:
            yield HealthCheck("ok", f"the extra {extra} is installed")


def _settings() -> HealthCheck:
    path = config_directory() / "config.toml"
    try:
        read_settings(path)
    except ConfigError as error:
        return HealthCheck("problem", sentence_of(error))
    return HealthCheck(
        "ok", f"the settings in {path} are right" if path.exists() else f"there are no settings in {path}"
    )


def _state() -> HealthCheck:
    try:
        folder = private_directory(state_directory())
    except ConfigError as error:
        return HealthCheck("problem", sentence_of(error))
    if not os.access(folder, os.W_OK):
        return HealthCheck("problem", f"nothing can be kept in {folder}: it may not be written to")
    return HealthCheck("ok", f"conversations are kept in {folder}")


def _tools() -> HealthCheck:
    """Whether those that the environment or the settings name can be had."""
    from midspan._cli.tool_files import tools_of
    from midspan.tools.merge import source_of

    try:
        named = settings_of(_NO_FLAGS).tools
    except ConfigError:
        return HealthCheck("note", "which tools there are cannot be told before the settings are right")
    try:
        with Stoppable() as loop:
            count = len(loop.run(source_of(tools_of(named)).list_tools()).tools)
    except MidspanError as error:
        return HealthCheck("problem", sentence_of(error))
    whose = "the ready ones" if named is None else f"from {', '.join(named) or 'nowhere'}"
    return HealthCheck("ok", f"there {'is 1 tool' if count == 1 else f'are {count} tools'}, {whose}")


_NO_FLAGS = Namespace(model=None, tools=None, no_tools=False, system=None, max_turns=None)


def _models() -> Iterator[HealthCheck]:
    """Whether the chosen model can be had, and what each family says of its credentials and connection."""
    from midspan.providers.registry import credential_variables, default_family, fallback_family, families

    named = os.environ.get("MIDSPAN_MODEL") or _named_in_settings()
    if named and (error := _error_of_name(named)):
        yield HealthCheck("problem", f"the model {named}: {error}")
    with Stoppable() as loop:
        for family in families():
            if family.check is not None:
                yield from loop.run(family.check())
    if not named and default_family() is None:
        family = fallback_family()
        yield HealthCheck(
            "note",
            f"no model is named and no key is set, so the {family.name} model answers; {family.summary}. "
            f"Set {credential_variables()}, or name a model.",
        )


def _error_of_name(name: str) -> str | None:
    from midspan.providers.registry import provider_of

    try:
        provider_of(name)
    except ConfigError as error:
        return sentence_of(error)
    return None


def _named_in_settings() -> str | None:
    try:
        return read_settings(config_directory() / "config.toml").model
    except ConfigError:
        return None  # which was told before


def _weather() -> HealthCheck:
    from midspan.providers.rest import can_connect

    address = os.environ.get("MIDSPAN_WEATHER_URL") or "https://wttr.in"
    if can_connect(address, _SECONDS):
        return HealthCheck("ok", f"{address} can be reached, which the tool get_weather asks")
    return HealthCheck("note", f"{address} cannot be reached, so the tool get_weather has no answers")
