"""How long each stage of a request may take."""

from msgspec import Struct
from msgspec.structs import asdict

from midspan.errors import ConfigError


class Deadlines(Struct, frozen=True):
    """Seconds for each stage of a request; None waits for ever.

    The defaults suit models: one that thinks says nothing for minutes, and that is no failure. A peer that is gone
    without a word is found out sooner than that, by the probes of TCP.
    """

    connect: float | None = 10.0
    """From wanting a connection to having one: name, proxy and TLS included."""
    first_byte: float | None = 600.0
    """From having a connection to the head of the response, so that the sending of the request counts."""
    between_bytes: float | None = 180.0
    """The longest silence within the body of the response."""
    total: float | None = None
    """From wanting a connection to the end of the body."""

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            if seconds is not None and not (type(seconds) in (int, float) and seconds > 0):
                raise ConfigError(f"the deadline {name} is {seconds!r}; it is a number of seconds above 0, or None")
