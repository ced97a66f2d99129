"""Validation of values that users of the emulator construct."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields, force_setattr

from midspan.errors import ConfigError

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
"""Up to a year."""


class Validated(Struct, frozen=True):
    """A Struct whose constructor checks the types and limits of its fields. Lists become tuples."""

    def __post_init__(self) -> None:
        for field in fields(type(self)):
            value = getattr(self, field.name)
            try:
                force_setattr(self, field.name, msgspec.convert(value, field.type))
            except msgspec.ValidationError as error:
                raise ConfigError(f"invalid {field.name} {value!r:.80}: {error}") from error
