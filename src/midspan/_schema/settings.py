"""Settings from files and keyword arguments."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from midspan.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


def settings_of(kind: type[T], values: Mapping[str, Any], source: str, others: Collection[str] = ()) -> T:
    """Return `values` as a settings Struct. Raises ConfigError, naming `source`, if one is unknown or not valid.

    `others` are the names of settings of `source` that are read elsewhere.
    """
    known = [*others, *kind.__struct_fields__]
    for name in values:
        if name not in known:
            from difflib import get_close_matches  # loaded with the first error

            close = get_close_matches(name, known)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(f"{source}: unknown setting {name!r}; {hint}known settings: {', '.join(known)}")
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        from midspan._schema.arguments import SchemaValidator

        problems = SchemaValidator(msgspec.json.schema(kind)).problems(dict(values))
        raise ConfigError(f"{source}: {'; '.join(map(str, problems)) or error}") from error
