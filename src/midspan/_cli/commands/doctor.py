"""`midspan doctor`: checks of the installation, the settings, the credentials and the connections."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.util import find_spec

from midspan._cli.commands.keys import load_keys
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.log import RunLog
from midspan._cli.settings import Settings, load_settings, settings_path
from midspan._cli.text import error_sentence, wrap_line, write
from midspan._cli.tool_sources import load_tools
from midspan._types.texts import count_noun
from midspan._version import VERSION
from midspan.errors import MidspanError
from midspan.providers import HealthCheck, registry
from midspan.tools import source_of

_CLI_PACKAGES = ("rich", "prompt_toolkit", "shtab")


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""


def run(_options: Namespace) -> int:
    has_problem = False
    with InterruptibleRunner() as runner:
        doctor = _Doctor(runner)
        checks = (doctor.installation, doctor.settings_file, doctor.log, doctor.tools, doctor.model, doctor.connections)
        for check in checks:
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


class _Doctor:
    """The checks, in the order in which they need each other."""

    def __init__(self, runner: InterruptibleRunner) -> None:
        self._runner = runner
        self._settings = Settings(model=os.environ.get("MIDSPAN_MODEL") or None)

    def installation(self) -> Iterator[HealthCheck]:
        yield HealthCheck("ok", f"Midspan {VERSION} on Python {sys.version.partition(' ')[0]}")
        if missing := [name for name in _CLI_PACKAGES if find_spec(name) is None]:
            yield HealthCheck("note", f"not installed: {', '.join(missing)}; pip install 'midspan[cli]' installs them")

    def settings_file(self) -> Iterator[HealthCheck]:
        path = settings_path()
        self._settings = load_settings(Namespace())
        yield HealthCheck("ok", f"the settings in {path} are valid" if path.exists() else f"no settings file {path}")

    def log(self) -> Iterator[HealthCheck]:
        log = RunLog(self._runner.run)
        log.close()
        yield HealthCheck("ok", f"runs are logged in {log.path}")

    def tools(self) -> Iterator[HealthCheck]:
        names = self._settings.tools
        count = len(self._runner.run(source_of(load_tools(names)).list_tools()).tools)
        origin = "ready tools" if names is None else ", ".join(names) or "none configured"
        yield HealthCheck("ok", f"{count_noun(count, 'tool')} ({origin})")

    def model(self) -> Iterator[HealthCheck]:
        load_keys()
        if self._settings.model is not None:
            registry.check_credentials(self._settings.model)
        elif registry.default_family() is None:
            family = registry.fallback_family()
            answers = f"no model is named and no key is set, so the {family.name} model answers; {family.summary}"
            yield HealthCheck("note", f"{answers}. Set {registry.credential_variables()}, or name a model.")

    def connections(self) -> Iterator[HealthCheck]:
        """Check each family that has credentials, or else the first one."""
        known = [family for family in registry.families() if family.check is not None]
        configured = [family for family in known if family.has_credentials(os.environ)] or known[:1]
        for family in configured:
            yield from self._runner.run(family.check())  # type: ignore[misc]  # those in `known` have one
        others = ", ".join(family.name for family in known if family not in configured)
        yield HealthCheck("note", f"not configured: {others}; midspan keys set NAME stores a key")
