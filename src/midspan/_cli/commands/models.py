"""`midspan models`: the models of all providers."""

import os
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_json_argument
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.text import error_sentence, exit_code, print_line, write_result
from midspan.errors import MidspanError
from midspan.providers.registry import families


def add_arguments(parser: ArgumentParser) -> None:
    add_json_argument(parser)


def run(options: Namespace) -> int:
    models: list[str] = []
    errors: dict[str, MidspanError] = {}
    known = list(families())
    configured = [family for family in known if family.has_credentials(os.environ) or not family.environment]
    has_key = any(family.environment for family in configured)
    with InterruptibleRunner() as runner:
        for family in configured if has_key else known:
            names = family.known_models or ((family.default_model,) if family.default_model else ())
            if family.list_models is not None and has_key:
                try:
                    names = tuple(runner.run(family.list_models()))
                except MidspanError as error:
                    errors[family.name] = error
                    continue
            models += [f"{family.name}:{name}" for name in names] or [family.name]
    if errors and len(errors) == sum(family.list_models is not None for family in configured):
        raise next(iter(errors.values()))
    if not has_key:
        print_line("no key is set; these are the models known to this version")
    unavailable = [{"name": name, "message": error_sentence(error)} for name, error in errors.items()]
    for provider in unavailable:
        print_line(f"no models of {provider['name']}: {provider['message']}")
    document = {"models": models, "source": "api" if has_key else "known", "unavailable": unavailable}
    write_result(document, models, as_json=options.json)
    return max(map(exit_code, errors.values()), default=0)
