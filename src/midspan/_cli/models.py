"""`midspan models`: the models of all providers."""

import os
import sys
from argparse import ArgumentParser, Namespace

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.text import escape_line, json_document, print_line
from midspan.providers.registry import families


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(options: Namespace) -> int:
    models: list[str] = []
    source = "known"
    with InterruptibleRunner() as runner:
        for family in families():
            names = family.known_models
            if family.list_models is not None and family.has_credentials(os.environ):
                names, source = tuple(runner.run(family.list_models())), "api"
            elif family.list_models is not None and not options.json:
                variables = " or ".join(family.environment)
                print_line(f"{variables} is not set, so these are the {family.name} models known to this version")
            models += [f"{family.name}:{name}" for name in names] or [family.name]
    if options.json:
        sys.stdout.write(json_document({"models": models, "source": source}))
    else:
        sys.stdout.write("".join(f"{escape_line(name)}\n" for name in models))
    return 0
