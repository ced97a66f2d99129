"""What can be set about a server."""

from collections.abc import Sequence

from msgspec import Struct

from wasat.http.clock import Clock, SystemClock


class Options(Struct, frozen=True):
    api_key: str | None = None
    """The only key that is right; without one any is, but for an empty one and `invalid`."""
    models: Sequence[str] | None = None
    """The only models that there are; without them all that Gemini has or had."""
    strict_signatures: bool = False
    """Refuse signatures that another server made, too."""
    least_cache_tokens: int = 1_024
    clock: Clock = SystemClock()
