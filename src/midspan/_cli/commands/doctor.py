"""`midspan doctor`: checks of the installation, the settings, the credentials and the connections."""

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from midspan._cli.commands.keys import load_keys
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.settings import load_settings, settings_path
from midspan._cli.text import error_sentence, wrap_line, write
from midspan._version import VERSION
from midspan.errors import MidspanError
from midspan.providers import HealthCheck, registry

_CLI_PACKAGES = ("rich", "prompt_toolkit", "shtab")


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""


def run(_options: Namespace) -> int:
    has_problem = False
    for check in (_installation, _settings, _connections):
        try:
            for result in check():
                _print(result)
                has_problem |= result.state == "problem"
        except (MidspanError, OSError) as error:
            _print(HealthCheck("problem", error_sentence(error)))
            has_problem = True
    sys.stdout.write("there are problems to solve\n" if has_problem else "no problems\n")
    return int(has_problem)


def _print(check: HealthCheck) -> None:
    write(sys.stdout, wrap_line(f"{check.state:<8}{check.message}", sys.stdout, indent=" " * 8))


def _installation() -> Iterator[HealthCheck]:
    yield HealthCheck("ok", f"Midspan {VERSION} on Python {sys.version.partition(' ')[0]}")
    if missing := [name for name in _CLI_PACKAGES if find_spec(name) is None]:
        yield HealthCheck("note", f"not installed: {', '.join(missing)}; pip install 'midspan[cli]' installs them")


def _settings() -> Iterator[HealthCheck]:
    """Check the files of keys and settings, and the model that they configure."""
    load_keys()
    path, model = settings_path(), load_settings(Namespace()).model
    yield HealthCheck("ok", f"the settings in {path} are valid" if path.exists() else f"no settings file {path}")
    if model is not None:
        registry.check_credentials(model)
    elif registry.default_family() is None:
        family = registry.offline_family()
        answers = f"no model is named and no key is set, so the {family.name} model answers; {family.summary}"
        yield HealthCheck("note", f"{answers}. Set {registry.credential_variables()}, or name a model.")


def _connections() -> Iterator[HealthCheck]:
    """Check each family that has credentials, or else the first one; all at the same time."""
    known = {family.name: family for family in registry.families() if family.check is not None}
    configured = [name for name in known if known[name].has_credentials(os.environ)] or [*known][:1]
    with InterruptibleRunner() as runner:
        for results in runner.run(_run_checks(known[name].check for name in configured)):
            yield from results
    others = ", ".join(name for name in known if name not in configured)
    yield HealthCheck("note", f"not configured: {others}; midspan keys set NAME stores a key")


async def _run_checks(checks: Iterable[Any]) -> Iterable[Sequence[HealthCheck]]:
    results: list[Sequence[HealthCheck]] = await asyncio.gather(*(check() for check in checks))
    return results
