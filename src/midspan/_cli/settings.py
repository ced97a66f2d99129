"""Settings from flags, environment variables and the settings file, and the user's directories."""

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from midspan._schema.conversion import settings_of
from midspan.errors import ConfigError


class Settings(Struct, frozen=True):
    """The settings of one command, and the content of config.toml."""

    model: str | None = None
    tools: list[str] | str | None = None
    """Files, modules or `ready`; None means the default, the ready tools."""
    system: str | None = None
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    log: bool = True
    log_days: Annotated[int, Meta(ge=1)] = 90
    """How long a conversation is kept after its last question."""
    options: dict[str, Any] = {}
    """Settings of the model, such as the temperature."""
    read_only: bool = False
    """Use only tools that are declared read-only."""


def load_settings(options: Namespace, path: Path | None = None, file: Settings | None = None) -> Settings:
    """Combine flags, environment variables and the settings file; the first of them that has a setting wins.

    `path` and `file` replace the settings file of the user.
    """
    path, flags = path or settings_path(), vars(options)
    try:
        settings = file or settings_of(Settings, read_toml(path), str(path))
    except (FileNotFoundError, NotADirectoryError):
        settings = Settings()
    model = flags.get("model")
    if model is not None and not model.strip():
        raise ConfigError("the model is empty; pass the name of a model to --model, or leave it out")
    changes: dict[str, Any] = {
        "model": model or os.environ.get("MIDSPAN_MODEL") or None,
        "tools": _tool_names(flags, settings, path.parent),
        "system": flags.get("system"),
        "max_turns": flags.get("max_turns"),
        "log": False if flags.get("no_log") else None,
        "options": settings.options | read_options(flags.get("option", [])),
    }
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


def _tool_names(flags: dict[str, Any], settings: Settings, folder: Path) -> list[str] | None:
    if flags.get("no_tools"):
        return []
    if flags.get("tools"):
        return list(flags["tools"])
    if variable := os.environ.get("MIDSPAN_TOOLS"):
        return [name for name in variable.split(os.pathsep) if name]
    # A relative path in the settings file is relative to that file.
    names = [settings.tools] if isinstance(settings.tools, str) else settings.tools
    if names is None:
        return None
    return [str(folder / user_path(name)) if name.endswith(".py") else name for name in names]


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Return the model settings of `-o key=value`; values are JSON where they can be read as such."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"-o takes KEY=VALUE, for example -o temperature=0.2, got {pair!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises FileNotFoundError or NotADirectoryError if there is none."""
    text = path.read_bytes()
    import tomllib  # few users have a settings file

    try:
        return tomllib.loads(text.decode())
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def settings_path() -> Path:
    return user_directory("config") / "config.toml"


def user_directory(purpose: Literal["config", "cache", "state"]) -> Path:
    """Return a directory by the XDG base directory specification, which says to ignore relative paths."""
    base = Path(os.environ.get(f"XDG_{purpose.upper()}_HOME", ""))
    default = Path.home() / (".local/state" if purpose == "state" else f".{purpose}")
    return (base if base.is_absolute() else default) / "midspan"


def user_path(name: str) -> Path:
    """Return a path that the user wrote; it may start with `~` or `~user`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"unknown user in the path {name!r}") from error


def private_directory(path: Path, remedy: str = "") -> Path:
    """Create a directory that only its owner can read. `remedy` says in the error what would help."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create the directory {str(path)!r}: {error.strerror}{remedy}") from error
    return path


def write_private(path: Path, data: bytes, *, create_folder: bool = True) -> None:
    """Write a file that only its owner can read. Raises ConfigError if that fails."""
    from midspan._storage.files import replace_file

    try:
        replace_file(path, data, create_folder=create_folder)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error
