"""`midspan models`: the models that can be named."""

import os
import sys
from argparse import ArgumentParser, Namespace

from midspan._cli.exits import say
from midspan._cli.interrupts import Stoppable
from midspan._cli.report import as_json
from midspan._cli.visible import visible
from midspan.providers.family import ProviderFamily
from midspan.providers.registry import families


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: Namespace) -> int:
    models: list[str] = []
    unlisted: list[ProviderFamily] = []
    listed = False
    with Stoppable() as loop:
        for family in families():
            if family.list_models is not None and family.has_credentials(os.environ):
                names = loop.run(family.list_models())
                listed = True
            else:
                names = family.known_models
                unlisted += [family] if family.list_models is not None else []
            models += [f"{family.name}:{name}" for name in names] or [family.name]
    if options.json:
        sys.stdout.write(as_json({"models": models, "source": "api" if listed else "known"}))
        return 0
    for family in unlisted:
        variables = " or ".join(family.environment)
        say(f"the {family.name} models are those that this version knows; with {variables} the API is asked")
    sys.stdout.write("".join(f"{visible(name)}\n" for name in models))
    return 0
