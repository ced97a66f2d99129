"""The one door to jsonschema-rs: schemas are compiled here, and nothing is ever fetched."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from midspan.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs
from midspan._schema.checking.weight import Weight, weigh
from midspan._schema.checking.wording import Wording
from midspan._schema.paths import quoted
from midspan._schema.positions import check_size, pointer
from midspan._schema.references import Document
from midspan._schema.type_aliases import TYPES

_BACKTRACKS = 100_000


class Compiled:
    """A schema ready to check values. Its messages call it an «invalid `label` schema» if it is none."""

    def __init__(
        self,
        schema: Any,
        *,
        label: str,
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
        draft: str | None = None,
    ) -> None:
        self.schema = schema
        self._options: dict[str, Any] = {"validate_formats": formats, "retriever": _retriever(remotes or {})}
        self._draft = draft
        self._parts: Any = None
        self._matchers: dict[str, Any] = {}
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            check_size(schema)
            self.document = Document(schema if isinstance(schema, dict) else {})
            self.weight: Weight = weigh(self.document)
            self.validator = self._built()
        except ValueError as error:
            raise SchemaError(f"invalid {label} schema: {_told(error)}") from error

    @property
    def compares_deeply(self) -> bool:
        """Whether checking a value may go deeper into it than the schema itself is deep."""
        return self.weight.recursive or self.weight.compares

    def part(self, node: Any) -> "jsonschema_rs.Validator | None":
        """The validator of one schema inside this one; None if it is not a place of its own."""
        import jsonschema_rs

        if self._parts is None:
            self._parts = jsonschema_rs.validator_map_for(self.schema, **self._options, **self._patterns())
        pointer = self.document.pointers.get(id(node))
        found: jsonschema_rs.Validator | None = None if pointer is None else self._parts.get(f"#{pointer}")
        return found

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a text has the pattern, as the validator reads patterns: no text makes it take for ever."""
        import jsonschema_rs

        if pattern not in self._matchers:
            self._matchers[pattern] = jsonschema_rs.validator_for({"pattern": pattern}, **self._patterns())
        try:
            return isinstance(text, str) and bool(self._matchers[pattern].is_valid(text))
        except ValueError:  # half a character
            return False

    def _built(self) -> "jsonschema_rs.Validator":
        """With regular expressions of the linear-time engine, if it knows all that the patterns use."""
        import jsonschema_rs

        build: Callable[..., jsonschema_rs.Validator] = jsonschema_rs.validator_for
        if self._draft is not None and "$schema" not in (self.schema if isinstance(self.schema, dict) else ()):
            build = getattr(jsonschema_rs, f"Draft{_CLASSES[self._draft]}Validator")
        self._linear = True
        try:
            return build(self.schema, **self._options, **self._patterns())
        except ValueError:
            self._linear = False
            return build(self.schema, **self._options, **self._patterns())

    def _patterns(self) -> dict[str, Any]:
        import jsonschema_rs

        if self._linear:
            return {"pattern_options": jsonschema_rs.RegexOptions()}
        return {"pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)}


_CLASSES = {"4": "4", "6": "6", "7": "7", "2019-09": "201909", "2020-12": "202012"}


def _retriever(remotes: Mapping[str, Any]) -> Callable[[str], Any]:
    def refuse(uri: str) -> Any:
        known = remotes.get(uri, remotes.get(uri.rstrip("#")))
        if known is None:
            raise ValueError(f"{uri} is never fetched")
        return known

    return refuse


def _told(error: ValueError) -> str:
    """What the validator says of a schema that is none, in our words and with the place."""
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return (str(error).strip().splitlines() or ["it cannot be read"])[0][:300]
    if type(error.kind).__name__ == "Referencing":
        return _told_of_reference(error.message)
    place = pointer(tuple(map(str, error.instance_path)))
    if place.endswith("/type") or "/type/" in place:
        words = f"{quoted(error.instance)} is no type; the types are {', '.join(TYPES)}"
    else:
        words = " and ".join(one.message for one in Wording(Document({}), None).problems(error))
    return f"{words} at {place or 'the root'}"


def _told_of_reference(message: str) -> str:
    for pattern, words in _REFERENCE_WORDS:
        if found := pattern.match(message):
            return words.format(quoted(found[1]))
    return "a reference leads nowhere"


_REFERENCE_WORDS = (
    (re.compile("Resource '(.*?)' is not present"), "it refers to {}, which is not in the schema and is never fetched"),
    (re.compile("Pointer '(.*?)' does not exist"), "it refers to {}, where there is nothing"),
    (re.compile("Anchor '(.*?)' does not exist"), "it refers to the anchor {}, which is nowhere"),
    (re.compile("Unknown meta-schema: '(.*?)'"), "its $schema is {}, which is no draft that we know"),
)
