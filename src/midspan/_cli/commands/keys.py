"""`midspan keys`: API keys in a file that only its owner can read."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from midspan._cli.settings import settings_path, write_private
from midspan._cli.text import escape_line, print_line
from midspan.errors import ConfigError
from midspan.providers.registry import families, family_variables


def add_arguments(parser: ArgumentParser) -> None:
    actions_help = "what to do; list by default"
    parser.add_argument("action", choices=["list", "set", "delete"], nargs="?", default="list", help=actions_help)
    name_help = "a provider such as gemini, or a variable such as X_API_KEY"
    parser.add_argument("name", metavar="PROVIDER|VARIABLE", nargs="?", help=name_help)


def run(options: Namespace) -> int:
    keys = read_keys()
    if options.action == "list":
        if options.name:
            raise ConfigError(f"midspan keys list takes no name, got {options.name!r}")
        sys.stdout.write("".join(f"{escape_line(name)}\n" for name in keys))
        if not keys:
            print_line(f"no keys are stored in {keys_path()}; midspan keys set gemini stores one")
        return 0
    if not options.name:
        raise ConfigError(f"name a provider or a variable: midspan keys {options.action} gemini")
    variable, *others = _variables(options.name)
    changed = {name: key for name, key in keys.items() if name not in (variable, *others)}
    if options.action == "set":
        changed[variable] = _read_key(variable)
    elif len(changed) == len(keys):
        raise ConfigError(f"no key is stored for {variable}")
    write_private(keys_path(), msgspec.json.format(msgspec.json.encode(changed)) + b"\n")
    print_line(f"{'stored' if options.action == 'set' else 'deleted'} {variable} in {keys_path()}")
    return 0


def load_keys() -> None:
    """Put the stored keys into the environment, unless it has a key of the same family, which wins."""
    for name, key in read_keys().items():
        if not any(os.environ.get(variable, "").strip() for variable in family_variables(name)):
            os.environ[name] = key


def read_keys() -> dict[str, str]:
    try:
        return msgspec.json.decode(keys_path().read_bytes(), type=dict[str, str])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a JSON object of strings"
        raise ConfigError(f"cannot read {keys_path()}: {reason}") from error


def keys_path() -> Path:
    return settings_path().with_name("keys.json")


def _variables(name: str) -> list[str]:
    """Return the variable to store a key in, and the others of the provider, if it is one."""
    for family in families():
        if name == family.name and family.environment:
            return list(family.own_variables)
    if name.isidentifier() and name.isupper():
        return [name]
    known = ", ".join(family.name for family in families() if family.environment)
    raise ConfigError(f"unknown provider {name!r}; known providers: {known}; or name a variable such as GEMINI_API_KEY")


def _read_key(variable: str) -> str:
    """Read a key from a terminal without showing it, or from a pipe. As an argument, other users could see it."""
    if sys.stdin.isatty():
        from getpass import getpass

        key = getpass(f"{variable}: ")
    else:
        key = sys.stdin.readline()
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("the key is empty or contains invalid characters; nothing was stored")
    return key
