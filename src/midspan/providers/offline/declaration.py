"""A declared tool as the offline model reads it: its words, its verbs and its parameters."""

import re
from collections.abc import Collection
from typing import Any

from midspan._types.specs import ToolSpec
from midspan.providers.offline import language as english

_TYPES = {"str": "string", "int": "integer", "float": "number", "double": "number", "long": "integer",
          "bool": "boolean", "list": "array", "tuple": "array", "arraylist": "array", "dict": "object"}  # fmt: skip
_KINDS = {kind: re.compile(rf"\b(?:{'|'.join(names.split())})\b") for kind, names in english.LISTS["kinds"].items()}
_GENERIC, _FROM, _TO, _CATEGORIES = map(english.words, ("generic", "from", "to", "categories"))


class Parameter:
    """A parameter of a tool."""

    def __init__(self, name: str, schema: dict[str, Any], *, required: bool) -> None:
        self.name = name
        self.required = required
        self.description = str(schema.get("description") or "")
        self.type = _type(schema)
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        self.values = tuple(values) if isinstance(values, list) else ()  # the listed values
        self.examples = tuple(re.findall(r"(?<!\w)['\"`]([^'\"`]{2,40})['\"`](?!\w)", self.description))
        """The values that the description quotes."""
        self.words = english.name_words(name)
        self.stems = english.stems(self.words)
        telling = [word for word in self.words if word not in _GENERIC]
        self.heads = [english.stem(word) for word in telling or self.words] or [name.lower()]
        """The stems of the name that tell this parameter from others."""
        described = english.text_words(self.description)
        self.description_stems = english.stems(described)
        self.units = frozenset(map(english.unit_of, {*self.words, *described} - {"in", "a", "s"})) - {""}
        self.is_switch = self.type == "boolean" or {"true", "false"} <= {str(value).lower() for value in self.values}
        self.is_percent = bool(re.search(r"(?i)percent|%", f"{name} {self.description}"))
        self.is_category = not _CATEGORIES.isdisjoint(self.words)
        is_from, is_to = not _FROM.isdisjoint(self.words), not _TO.isdisjoint(self.words)
        self.side = "" if is_from == is_to else "from" if is_from else "to"  # of a pair, as the name says it
        self.kind = self._kind() if self.type in ("string", "any") else self.type
        """What a text is: a date, a place, …; the type of everything else."""

    def _kind(self) -> str:
        by_name = [kind for kind, pattern in _KINDS.items() if pattern.search(" ".join(self.words))]
        kinds = ("expression", "link", "date", "symbol")
        by_description = [kind for kind in kinds if _KINDS[kind].search(self.description.lower())]
        return str([*by_name, *by_description, "text"][0])


class Tool:
    """A declared tool."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.is_read_only = spec.changes is False
        schema = spec.parameters or {}
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        self.parameters = [
            Parameter(name, prop if isinstance(prop, dict) else {}, required=name in required)
            for name, prop in properties.items()
        ]
        names, described = english.name_words(spec.name), english.text_words(spec.description)
        self.name_words = frozenset(names)
        self.first_sentence = english.text_words(re.split(r"[.;!?\n]", spec.description)[0])
        self.name_stems = english.stems(names)
        self.topics = english.stems({name for name in names if len(name) > 1} - english.ASKING - english.STOP)
        self.vocabulary = self.name_stems.union(english.stems(described), *(prop.stems for prop in self.parameters))
        beginnings = english.name_words(spec.name.rpartition(".")[2])[:2], described[:2]
        self.verbs = frozenset(
            english.singular(first) + (f" {second}" if second in english.OPPOSITES else "")
            for first, second, *_ in ([*words, "", ""] for words in beginnings if words)
        )
        self.verbs -= {verb.partition(" ")[0] for verb in self.verbs if " " in verb}
        """The verbs that the name and the description begin with, with their particle: order, turn on."""

    def known_stems(self, arguments: Collection[str] | None = None) -> frozenset[str]:
        """The stems that a call accounts for: all but those of the options that it leaves out."""
        known = {*self.name_stems, *english.stems(english.text_words(self.spec.description))}
        for prop in self.parameters:
            if arguments is None or prop.required or prop.name in arguments:
                values = (english.stem(word) for value in prop.values for word in english.text_words(str(value)))
                known.update(prop.stems, prop.description_stems, values)
        return frozenset(known)


def _type(schema: dict[str, Any]) -> str:
    choices = [schema, *(schema.get("anyOf") or schema.get("oneOf") or ())]
    declared = [choice.get("type") for choice in choices if isinstance(choice, dict)]
    flat = [name for one in declared for name in (one if isinstance(one, list) else [one])]
    names = [str(name).lower() for name in flat if name not in (None, "null")] or ["any"]
    return _TYPES.get(names[0], names[0])
