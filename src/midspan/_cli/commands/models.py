"""`midspan models`: the models of all providers."""

import os
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_json_argument
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.text import print_line, write_result
from midspan.providers.registry import families


def add_arguments(parser: ArgumentParser) -> None:
    add_json_argument(parser)


def run(options: Namespace) -> int:
    models: list[str] = []
    source = "known"
    known = list(families())
    configured = [family for family in known if family.has_credentials(os.environ) or not family.environment]
    has_key = any(family.environment for family in configured)
    with InterruptibleRunner() as runner:
        for family in configured if has_key else known:
            names = family.known_models or ((family.default_model,) if family.default_model else ())
            if family.list_models is not None and has_key:
                names, source = tuple(runner.run(family.list_models())), "api"
            models += [f"{family.name}:{name}" for name in names] or [family.name]
    if not has_key:
        print_line("no key is set; these are the models known to this version")
    write_result({"models": models, "source": source}, models, as_json=options.json)
    return 0
