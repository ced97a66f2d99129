"""Where a user's files are, by the XDG base directory specification."""

import os
from pathlib import Path

from midspan.errors import ConfigError


def config_directory() -> Path:
    return _directory("XDG_CONFIG_HOME", ".config")


def state_directory() -> Path:
    """What shall outlive a call: conversations, and lines that were typed."""
    return _directory("XDG_STATE_HOME", ".local/state")


def _directory(variable: str, usual: str) -> Path:
    given = os.environ.get(variable, "")
    if os.path.isabs(given):  # noqa: PTH117 - an empty one is no path; relative ones are to be ignored, says the standard
        return Path(given) / "midspan"
    try:
        return Path.home() / usual / "midspan"
    except RuntimeError as error:
        raise ConfigError(f"this user has no home directory; set {variable} to a directory") from error


def private_directory(path: Path) -> Path:
    """The directory, made if need be, for its owner alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the directory {str(path)!r} cannot be made: {error.strerror}") from error
    return path
