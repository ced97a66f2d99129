"""Settings from flags, environment variables and the settings file, and the user's directories."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from midspan.errors import ConfigError


class SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of config.toml."""

    model: Annotated[str, Meta(pattern=r"\S")] | None = None
    tools: str | list[str] | None = None
    system: str | None = None
    max_turns: Annotated[int, Meta(ge=1)] | None = None


class Settings(Struct, frozen=True):
    """The settings of one command, from all places."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Files, modules or `ready`; None means the default, the ready tools."""
    system: str | None = None
    max_turns: int | None = None
    read_only: bool = False
    """Use only tools that are declared read-only."""


def load_settings(options: Namespace) -> Settings:
    """Combine flags, environment variables and the settings file; the first of them that has a setting wins."""
    path = settings_path()
    file = read_settings(path)
    if options.model is not None and not options.model.strip():
        raise ConfigError("--model is empty; pass the name of a model, or leave --model out")
    system = None if options.system is None else valid_text(options.system, "--system")
    return Settings(
        model=options.model or os.environ.get("MIDSPAN_MODEL") or file.model,
        tools=_tool_names(options, file, path.parent),
        system=file.system if system is None else system,
        max_turns=options.max_turns or file.max_turns,
    )


def _tool_names(options: Namespace, file: SettingsFile, folder: Path) -> tuple[str, ...] | None:
    if options.no_tools:
        return ()
    if options.tools:
        return tuple(options.tools)
    if variable := os.environ.get("MIDSPAN_TOOLS"):
        return tuple(filter(None, variable.split(os.pathsep)))
    if file.tools is None:
        return None
    names = [file.tools] if isinstance(file.tools, str) else file.tools
    # A relative path in the settings file is relative to that file.
    return tuple(str(folder / Path(name).expanduser()) if name.endswith(".py") else name for name in names)


def read_settings(path: Path) -> SettingsFile:
    """Read a settings file. If there is none, return the defaults."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return SettingsFile()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    import tomllib  # few users have a settings file

    try:
        return msgspec.convert(tomllib.loads(text), SettingsFile)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        known = ", ".join(SettingsFile.__struct_fields__)
        raise ConfigError(f"{path} is not valid: {error}; known settings: {known}") from error


def valid_text(text: str, name: str) -> str:
    """Return an argument or a line of input as valid text, also if the encoding of the locale is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that Python could not decode
        try:
            return os.fsencode(text).decode()
        except UnicodeError as error:
            raise ConfigError(f"{name} is not valid UTF-8 text") from error
    return text


def settings_path() -> Path:
    return _user_directory("XDG_CONFIG_HOME", ".config") / "config.toml"


def state_directory() -> Path:
    """Return the directory of conversations and of the input history."""
    return _user_directory("XDG_STATE_HOME", ".local/state")


def _user_directory(variable: str, default: str) -> Path:
    """Return a directory by the XDG base directory specification, which says to ignore relative paths."""
    base = Path(os.environ.get(variable, ""))
    try:
        return (base if base.is_absolute() else Path.home() / default) / "midspan"
    except RuntimeError as error:
        raise ConfigError(f"this user has no home directory; set {variable} to a directory") from error


def private_directory(path: Path) -> Path:
    """Create a directory that only its owner can read."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create the directory {str(path)!r}: {error.strerror}") from error
    return path
