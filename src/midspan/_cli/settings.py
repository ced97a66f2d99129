"""Settings from flags, environment variables and the settings file, and the user's directories."""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan._schema.settings import settings_of
from midspan.errors import ConfigError

_LOCK_SECONDS = 5.0


class SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of config.toml."""

    model: str | None = None
    tools: str | list[str] | None = None
    system: str | None = None
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    log: bool = True
    log_days: Annotated[int, Meta(ge=1)] = 90


class Settings(Struct, frozen=True):
    """The settings of one command, from all places."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Files, modules or `ready`; None means the default, the ready tools."""
    system: str | None = None
    max_turns: int | None = None
    read_only: bool = False
    """Use only tools that are declared read-only."""
    options: dict[str, Any] = {}
    """Settings of the model, such as the temperature."""
    log: bool = True
    log_days: int = 90
    """How long a conversation is kept after its last question."""


def load_settings(options: Namespace, path: Path | None = None, file: SettingsFile | None = None) -> Settings:
    """Combine flags, environment variables and the settings file; the first of them that has a setting wins.

    `path` and `file` replace the settings file of the user.
    """
    path = settings_path() if path is None else path
    file = read_settings(path) if file is None else file
    if options.model is not None and not options.model.strip():
        raise ConfigError("--model is empty; pass the name of a model, or leave --model out")
    system = None if options.system is None else valid_text(options.system, "--system")
    return Settings(
        model=options.model or os.environ.get("MIDSPAN_MODEL") or file.model,
        tools=_tool_names(options, file, path.parent),
        system=file.system if system is None else system,
        max_turns=options.max_turns or file.max_turns,
        options=read_options(getattr(options, "option", None) or []),
        log=file.log and not getattr(options, "no_log", False),
        log_days=file.log_days,
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


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Return the model settings of `-o key=value`; values are JSON where they can be read as such."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"-o takes KEY=VALUE, for example -o temperature=0.2, got {pair!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def read_settings(path: Path) -> SettingsFile:
    """Read a settings file. If there is none, return the defaults."""
    try:
        return to_settings(read_toml(path), path)
    except (FileNotFoundError, NotADirectoryError):
        return SettingsFile()


def to_settings(values: dict[str, Any], path: Path) -> SettingsFile:
    """Return the settings of a file."""
    settings = settings_of(SettingsFile, values, str(path))
    if settings.model is not None and not settings.model.strip():
        raise ConfigError(f"{path}: model must not be empty")
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises FileNotFoundError or NotADirectoryError if there is none."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from error
    import tomllib  # few users have a settings file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


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


def mcp_config_path() -> Path:
    """Return the user's own list of MCP servers."""
    return settings_path().with_name("mcp.json")


def cache_directory() -> Path:
    return _user_directory("XDG_CACHE_HOME", ".cache")


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


def private_directory(path: Path, remedy: str | None = None) -> Path:
    """Create a directory that only its owner can read. `remedy` says in the error what would help."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = "" if remedy is None else f"; {remedy}"
        raise ConfigError(f"cannot create the directory {str(path)!r}: {error.strerror}{hint}") from error
    return path


@contextmanager
def locked(path: Path, message: str) -> Iterator[None]:
    """Allow one writer at a time; `message` tells others why they may not. A process that dies releases its lock."""
    try:
        import fcntl
    except ImportError:  # Windows: of two commands that end at the same time, one may not be saved
        yield
        return
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise ConfigError(message) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(lock)
