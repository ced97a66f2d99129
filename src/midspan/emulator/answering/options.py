"""What can be set about a server."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from midspan._http.retry import Clock, SystemClock
from midspan.errors import ConfigError


class Options(Struct, frozen=True):
    api_key: str | None = None
    """The only key that is right; without one any is, but for an empty one and `invalid`."""
    models: Sequence[str] | None = None
    """The only models that there are; without them all that Gemini has or had."""
    strict_signatures: bool = False
    """Refuse signatures that another server made, too."""
    least_cache_tokens: int = 1_024
    clock: Clock = SystemClock()

    def __post_init__(self) -> None:
        key: Any = self.api_key
        if key is not None and (not isinstance(key, str) or not key.strip()):
            raise ConfigError(f"api_key is the only key that is right, a text, not {key!r:.80}; without one any is")
        models: Any = self.models
        if models is not None and not _are_names(models):
            raise ConfigError(f"models is a list of names, as ['gemini-3.8-flash'], not {models!r:.80}")
        if not isinstance(self.strict_signatures, bool):
            raise ConfigError(f"strict_signatures is True or False, not {self.strict_signatures!r:.80}")
        if type(self.least_cache_tokens) is not int or self.least_cache_tokens < 0:
            raise ConfigError(f"least_cache_tokens is a number from 0 on, not {self.least_cache_tokens!r:.80}")


def _are_names(given: Any) -> bool:
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    return is_list and all(isinstance(name, str) and name for name in given)
