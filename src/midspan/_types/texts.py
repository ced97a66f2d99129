"""Texts that can be sent: JSON is Unicode, and half a character, as a name of a file may hold it, is none."""

from typing import Any

from midspan.errors import ConfigError


def check_text(text: Any, what: str) -> None:
    """Refuse what is no text, or cannot be sent, as `what` it was given for."""
    if not isinstance(text, str):
        raise ConfigError(f"{what} is a text, not {text!r:.80}")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{what} is no valid Unicode: it holds {text[error.start]!r} at character {error.start}"
        ) from None
