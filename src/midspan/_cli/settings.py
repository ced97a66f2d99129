"""What is wanted where the flags do not say it: the environment, then the file of settings."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from msgspec import Struct

from midspan._cli.directories import config_directory
from midspan._cli.question import typed
from midspan.errors import ConfigError


class Settings(Struct, frozen=True):
    """What holds, from wherever it came."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Files, modules or `ready`; None is nothing said, which is the ready tools."""
    system: str | None = None
    max_turns: int | None = None
    read_only: bool = False
    """Offer only the tools that declare themselves read-only."""


def settings_of(options: Namespace) -> Settings:
    """Flags beat the environment, which beats the file."""
    file = read_settings(config_directory() / "config.toml")
    if options.model is not None and not options.model.strip():
        raise ConfigError("the name of the model is empty; give one to --model, or leave it out")
    return Settings(
        model=options.model or os.environ.get("MIDSPAN_MODEL") or file.model,
        tools=_tools(options, file),
        system=file.system if options.system is None else typed(options.system, "what --system says"),
        max_turns=options.max_turns or file.max_turns,
    )


def _tools(options: Namespace, file: Settings) -> tuple[str, ...] | None:
    if options.no_tools:
        return ()
    if options.tools:
        return tuple(options.tools)
    named = os.environ.get("MIDSPAN_TOOLS", "")
    return tuple(filter(None, named.split(os.pathsep))) if named else file.tools


def read_settings(path: Path) -> Settings:
    """The settings in a file; none if there is no file."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    import tomllib  # only for those who have a file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    return Settings(**{name: _read(path, name, value) for name, value in found.items()})


def _read(path: Path, name: str, value: Any) -> Any:
    match name, value:
        case "model", str() if value.strip():
            return value
        case "system", str():
            return value
        case "max_turns", int() if value > 0 and value is not True:
            return value
        case "tools", str():
            return (_placed(value, path),)
        case "tools", list() if all(isinstance(one, str) for one in value):
            return tuple(_placed(one, path) for one in value)
    if name in _FORMS:
        raise ConfigError(f"{path}: {name} is {_FORMS[name]}, not {value!r}")
    from difflib import get_close_matches

    near = get_close_matches(name, _FORMS, 1)
    raise ConfigError(f"{path}: there is no setting {name!r}; {f'did you mean {near[0]}?' if near else _KNOWN}")


_FORMS = {
    "model": "the name of a model",
    "system": "a text",
    "max_turns": "a whole number above 0",
    "tools": "a text or a list of texts",
}
_KNOWN = f"known: {', '.join(_FORMS)}"


def _placed(tools: str, path: Path) -> str:
    """A file named in the settings is beside them, unless it says where it is."""
    return str(path.parent / Path(tools).expanduser()) if tools.endswith(".py") else tools
