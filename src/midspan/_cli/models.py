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
    unlisted: list[str] = []
    source = "known"
    with InterruptibleRunner() as runner:
        for family in families():
            names = family.known_models or ((family.default_model,) if family.default_model else ())
            if family.list_models is not None and family.has_credentials(os.environ):
                names, source = tuple(runner.run(family.list_models())), "api"
            elif family.list_models is not None:
                unlisted.append(family.name)
            models += [f"{family.name}:{name}" for name in names] or [family.name]
    if unlisted and not options.json:
        print_line(f"no key is set for {', '.join(unlisted)}: of these, the models known to this version")
    if options.json:
        sys.stdout.write(json_document({"models": models, "source": source}))
    else:
        sys.stdout.write("".join(f"{escape_line(name)}\n" for name in models))
    return 0
