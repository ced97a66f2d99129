"""`midspan doctor`: checks of the installation, the settings, the credentials and the connections."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.util import find_spec

from midspan._cli.commands.keys import load_keys
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.log import RunLog
from midspan._cli.settings import Settings, load_settings, private_directory, settings_path, state_directory
from midspan._cli.text import count_noun, describe_error, short_path, wrap_line
from midspan._version import VERSION
from midspan.errors import ConfigError, MidspanError
from midspan.providers import HealthCheck

_CLI_PACKAGES = ("rich", "prompt_toolkit", "shtab")
_SECONDS = 5.0


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""


def run(_options: Namespace) -> int:
    has_problem = False
    with InterruptibleRunner() as runner:
        for check in _checks(runner):
            sys.stdout.write(wrap_line(f"{check.state:<8}{check.message}", sys.stdout, indent=" " * 8))
            sys.stdout.flush()  # the checks of connections take a while
            has_problem |= check.state == "problem"
    sys.stdout.write("there are problems to solve\n" if has_problem else "no problems\n")
    return int(has_problem)


def _checks(runner: InterruptibleRunner) -> Iterator[HealthCheck]:
    yield HealthCheck("ok", f"Midspan {VERSION} on Python {sys.version.partition(' ')[0]}")
    yield _check_packages()
    settings, check = _check_settings()
    yield check
    yield from _check_keys()
    yield _check_state(runner)
    yield _check_tools(runner, settings)
    yield from _check_models(runner, settings)
    yield _check_weather()


def _check_packages() -> HealthCheck:
    if missing := [name for name in _CLI_PACKAGES if find_spec(name) is None]:
        return HealthCheck("note", f"not installed: {', '.join(missing)}; pip install 'midspan[cli]' installs them")
    return HealthCheck("ok", f"{', '.join(_CLI_PACKAGES)} are installed")


def _check_settings() -> tuple[Settings | None, HealthCheck]:
    """Return the settings of commands without flags; None if the file is not valid."""
    path = settings_path()
    try:
        settings = load_settings(Namespace(model=None, tools=None, no_tools=False, system=None, max_turns=None))
    except ConfigError as error:
        return None, HealthCheck("problem", describe_error(error))
    shown = short_path(path)
    return settings, HealthCheck(
        "ok", f"the settings in {shown} are valid" if path.exists() else f"no settings file {shown}"
    )


def _check_keys() -> Iterator[HealthCheck]:
    """Load the stored keys, which the checks of models need."""
    try:
        load_keys()
    except ConfigError as error:
        yield HealthCheck("problem", describe_error(error))


def _check_state(runner: InterruptibleRunner) -> HealthCheck:
    try:
        folder = private_directory(state_directory())
    except ConfigError as error:
        return HealthCheck("problem", describe_error(error))
    if not os.access(folder, os.W_OK):
        return HealthCheck("problem", f"nothing can be logged: no permission to write to {folder}")
    if (folder / "runs.db").exists():
        log = RunLog(runner.run)
        try:
            log.check()
        except MidspanError as error:
            return HealthCheck("problem", describe_error(error))
        finally:
            log.close()
    return HealthCheck("ok", f"runs are logged in {short_path(folder)}")


def _check_tools(runner: InterruptibleRunner, settings: Settings | None) -> HealthCheck:
    """Load the tools that the environment or the settings file names."""
    from midspan._cli.tool_sources import load_tools
    from midspan.tools import source_of

    if settings is None:
        return HealthCheck("note", "the tools were not checked, because the settings are not valid")
    names = settings.tools
    try:
        count = len(runner.run(source_of(load_tools(names)).list_tools()).tools)
    except MidspanError as error:
        return HealthCheck("problem", describe_error(error))
    origin = "ready tools" if names is None else ", ".join(names) or "none configured"
    return HealthCheck("ok", f"{count_noun(count, 'tool')} ({origin})")


def _check_models(runner: InterruptibleRunner, settings: Settings | None) -> Iterator[HealthCheck]:
    """Check the configured model, then the connection of each family that has credentials."""
    from midspan.providers.registry import (
        check_credentials,
        credential_variables,
        default_family,
        fallback_family,
        families,
    )

    name = os.environ.get("MIDSPAN_MODEL") if settings is None else settings.model
    if name:
        try:
            check_credentials(name)
        except ConfigError as error:
            yield HealthCheck("problem", f"the model {name}: {describe_error(error)}")
    known = [family for family in families() if family.check is not None]
    configured = [family for family in known if family.has_credentials(os.environ)] or known[:1]
    for family in configured:
        yield from runner.run(family.check())  # type: ignore[misc]  # those in `known` have one
    others = ", ".join(family.name for family in known if family not in configured)
    yield HealthCheck("note", f"not configured: {others}")
    if not name and default_family() is None:
        family = fallback_family()
        yield HealthCheck(
            "note",
            f"no model is named and no key is set, so the {family.name} model answers; {family.summary}. "
            f"Set {credential_variables()}, or name a model.",
        )


def _check_weather() -> HealthCheck:
    from midspan.providers.rest import can_connect

    url = os.environ.get("MIDSPAN_WEATHER_URL") or "https://wttr.in"
    if can_connect(url, _SECONDS):
        return HealthCheck("ok", f"{url}, the server of the tool get_weather, can be reached")
    return HealthCheck("note", f"{url} cannot be reached, so the tool get_weather does not work")
