"""Declared tools, and the reading of a question as a call of one of them; it fails if an argument has two readings."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import product
from typing import Any

from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import TYPES, SchemaNode
from midspan._types.specs import ToolSpec
from midspan.providers.offline import language as english
from midspan.providers.offline.language import Mention, Question

_NAMED, _MEASURED, _LIKELY, _FITS, _NO = 4, 3, 2, 1, 0
"""How clearly a value belongs to a parameter: the name, the unit, the kind or only the type fits."""
_PLAIN, _BETWEEN, _FILLING = english.STOP | english.ASKING, english.words("between"), english.words("filling")
_SWITCHES = english.stems(english.words("switches"))
_CUES = {cue: frozenset(names.split()) for names, cues in english.LISTS["cues"].items() for cue in cues.split()}
_SIDES = {"from": "from", "to": "to", "into": "to", "in": "to"}
_KINDS_OF_TEXT = {kind: frozenset(kinds.split()) for kind, kinds in english.LISTS["kinds_of_text"].items()}
_SIGNS = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/"}
_NUMBER, _SIGN = r"(?:\d[\d,]*\d|\d)(?:\.\d+)?%?", rf"(?:\*\*|//|[-+*/^%]|of|{'|'.join(_SIGNS)})"
_EXPRESSION = re.compile(rf"(?i)[-(\s]*(?<![\w.]){_NUMBER}[\s)!]*(?:{_SIGN}[\s(]*-?{_NUMBER}[\s)!]*)+(?!\w)")
_KINDS = {kind: re.compile(rf"\b(?:{'|'.join(names.split())})\b") for kind, names in english.LISTS["kinds"].items()}
_GENERIC, _FROM, _TO, _FREE_TEXT = map(english.words, ("generic", "from", "to", "free_text"))


class Parameter:
    """A parameter of a tool."""

    def __init__(self, name: str, schema: SchemaNode, *, required: bool) -> None:
        self.name = name
        self.required = required
        self.description = str(schema.schema.get("description") or "")
        types = [type_name for type_name in TYPES if type_name in schema.types and type_name != "null"]
        self.type = types[0] if 0 < len(types) < len(TYPES) - 1 else "any"
        self.values = tuple(value for part in schema.flattened_without_null for value in part.enum_values or ())
        """The values that the schema lists."""
        self.examples = tuple(re.findall(r"(?<!\w)['\"`]([^'\"`]{2,40})['\"`](?!\w)", self.description))
        """The values that the description quotes."""
        self.words = english.name_words(name)
        self.stems = english.stems(self.words)
        telling = [word for word in self.words if word not in _GENERIC]
        self.heads = [english.stem(word) for word in telling or self.words] or [name.lower()]
        """The stems of the name that tell this parameter from others."""
        described = english.text_words(self.description)
        listed = [word for value in self.values for word in english.text_words(str(value))]
        self.vocabulary = self.stems | english.stems([*described, *listed])
        self.units = frozenset(map(english.unit_of, {*self.words, *described} - {"in", "a", "s"})) - {""}
        self.is_switch = self.type == "boolean" or {"true", "false"} <= {str(value).lower() for value in self.values}
        self.could_be_meant = bool(self.values) or self.type not in ("integer", "number")
        is_from, is_to = not _FROM.isdisjoint(self.words), not _TO.isdisjoint(self.words)
        self.side = "" if is_from == is_to else "from" if is_from else "to"  # of a pair, as the name says it
        by_name = [kind for kind, pattern in _KINDS.items() if pattern.search(" ".join(self.words))]
        text = self.description.lower()
        by_description = [kind for kind in ("expression", "link", "date", "symbol") if _KINDS[kind].search(text)]
        self.kind = [*by_name, *by_description, "text"][0] if self.type in ("string", "any") else self.type
        """What a text is: a date, a place, …; the type of everything else."""


class MatchedTool:
    """A declared tool."""

    def __init__(self, spec: ToolSpec) -> None:
        self.name = spec.name
        self.is_read_only = spec.changes is False
        root = normalize_tree(spec.parameters or {}).root
        required = root.schema.get("required") or ()
        self.parameters = [Parameter(name, prop, required=name in required) for name, prop in root.properties.items()]
        names, described = english.name_words(spec.name), english.text_words(spec.description)
        self.name_words = frozenset(names)
        self.first_sentence = english.text_words(re.split(r"[.;!?\n]", spec.description)[0])
        self.name_stems = english.stems(names)
        self.topics = english.stems({name for name in names if len(name) > 1} - english.ASKING - english.STOP)
        self.tool_stems = self.name_stems | english.stems(described)
        self.vocabulary = self.tool_stems.union(*(prop.stems for prop in self.parameters))
        beginnings = english.name_words(spec.name.rpartition(".")[2])[:1] + described[:1]
        self.verbs = frozenset(map(english.singular, beginnings))  # with which the name and the description begin
        self.particles = self.name_words & english.words("particles")

    def known_stems(self, arguments: Collection[str] | None = None) -> frozenset[str]:
        """The stems that a call accounts for: all but those of the options that it leaves out."""
        props = [prop for prop in self.parameters if arguments is None or prop.required or prop.name in arguments]
        return self.tool_stems.union(*(prop.vocabulary for prop in props))


class Matcher:
    """Reads one question as a call of one tool."""

    def __init__(self, tool: MatchedTool, question: Question) -> None:
        self.tool = tool
        self.question = question
        self.arguments: dict[str, Any] = {}
        self.taken: dict[str, Mention] = {}  # where each argument stands
        self.used: set[int] = set()  # the tokens that arguments took
        self.has_bare_text = False

    def match(self) -> bool:
        """Fill in the arguments; False if there is not exactly one reading."""
        if not self._fill_listed() or not self._fill_mentioned():
            return False
        self._fill_switches()
        self._fill_examples()
        missing = [prop for prop in self._unset() if prop.required]
        return not missing or (len(missing) == 1 and self._fill_bare(missing[0]))

    def _unset(self) -> list[Parameter]:
        return [prop for prop in self.tool.parameters if prop.name not in self.arguments]

    def _take(self, prop: Parameter, mention: Mention) -> None:
        is_id = mention.kind == "number" and prop.type == "string"
        text = self.question.tokens[mention.first][0].removeprefix("#")
        self.arguments[prop.name] = text if is_id else mention.value
        self.taken[prop.name] = mention
        self.used.update(mention.tokens)

    def _fill_listed(self) -> bool:
        """Fill the parameters whose values are listed; False if more values are named than can be placed."""
        listed = [prop for prop in self.tool.parameters if prop.values and not prop.is_switch]
        groups = {repr(prop.values): [other for other in listed if other.values == prop.values] for prop in listed}
        return all(self._place(list(self._listed(props[0], props[0].values)), props) for props in groups.values())

    def _listed(self, prop: Parameter, values: tuple[Any, ...]) -> Iterator[Mention]:
        """Yield those of the values that stand in the question, each once, the longest first."""
        words_at, taken = self.question.words_at, set[int]()
        for value in sorted(values, key=lambda value: -len(str(value))):
            words = [english.stem(word) for word in english.text_words(str(value).replace("_", " "))]
            for at in range(len(words_at) - len(words) + 1 if words and words[0] not in english.STOP else 0):
                stems, indexes = zip(*words_at[at : at + len(words)], strict=True)
                is_named = "year" in prop.words or self._is_named(prop, indexes[0], indexes[-1])
                is_meant = is_named if str(value).isdigit() else len(str(value)) > 1
                if is_meant and list(stems) == words and taken.isdisjoint(indexes):
                    taken.update(indexes)
                    yield Mention("listed", value, indexes[0], indexes[-1])
                    break

    def _fill_mentioned(self) -> bool:
        """Give every mentioned value to one parameter; False if one is left over or could belong to two."""
        mentions = [item for item in self.question.mentions if item.first not in self.used and not self._is_word(item)]
        kinds = [prop.kind for prop in self.tool.parameters]
        expression = _expression(self.question) if "expression" in kinds else None
        if expression is not None:
            mentions = [*(item for item in mentions if item.first not in expression.tokens), expression]
        mentions = _grouped(mentions, self.question, kinds)
        keys = [item.value if isinstance(item.value, str) else at for at, item in enumerate(mentions)]
        distinct = dict(zip(reversed(keys), reversed(mentions), strict=True))  # a text may be repeated
        return self._place(list(distinct.values()), [prop for prop in self._unset() if not prop.values])

    def _is_word(self, mention: Mention) -> bool:
        """Whether a value is rather a word of the tool, such as BMI."""
        stems = english.stems(english.text_words(self.question.span(*mention[2:])))
        return mention.kind == "name" and stems <= self.tool.vocabulary

    def _place(self, mentions: list[Mention], props: list[Parameter]) -> bool:
        """Pair values and parameters, the clearest pairs first; False if a value is left."""
        indexes = product(range(len(mentions)), range(len(props)))
        scores = {(value, prop): self._score(mentions[value], props[prop]) for value, prop in indexes}

        def settle(pairs: list[tuple[int, int]]) -> bool:
            """Take the pairs in which neither side fits anything else."""
            values, targets = Counter(value for value, _ in pairs), Counter(prop for _, prop in pairs)
            clear = [(value, prop) for value, prop in pairs if values[value] == targets[prop] == 1]
            for taken_value, taken_prop in clear:
                self._take(props[taken_prop], mentions[taken_value])
                for value, prop in [pair for pair in scores if taken_value == pair[0] or taken_prop == pair[1]]:
                    del scores[value, prop]
            return bool(clear)

        for level in (_NAMED, _MEASURED, _LIKELY):
            settle([pair for pair, score in scores.items() if score >= level])
        is_settling = True
        while is_settling:
            fitting = [pair for pair, score in scores.items() if score >= _FITS]
            needed = [(value, prop) for value, prop in fitting if props[prop].required]
            others = [(value, prop) for value, prop in fitting if value not in dict(needed)]
            is_settling = settle(needed) or settle(others)
        return all(mention.first in self.used for mention in mentions)

    def _score(self, mention: Mention, prop: Parameter) -> int:
        """Say how clearly the question ties a value to a parameter."""
        kind, side = mention.kind, self._side(mention, prop)
        if kind == "listed":
            return side
        is_text = kind in ("name", "quoted", "link", "date")
        before, after = self.question.lower(mention.first - 1), self.question.lower(mention.last + 1)
        sign = re.sub(r"[\d.,]", "", self.question.tokens[mention.first][0])
        unit = english.unit_of(sign) or english.unit_of(after)
        is_count = unit or before == self.question.verb or after.endswith("s")
        is_measure = prop.units and unit not in {"", *prop.units}
        is_other = kind == "number" and (is_measure or ("id" in prop.words and is_count))
        if not _fits(mention, prop) or is_other or (is_text and side == _NO):
            return _NO
        has_cue = side == _NAMED or not _CUES.get(before, frozenset()).isdisjoint(prop.words)
        if (is_text and has_cue) or self._is_named(prop, mention.first, mention.last):
            return _NAMED
        if kind == "number" and unit in prop.units:
            return _MEASURED
        is_place = kind == "name" and prop.kind == "place" and before in ("in", "at", "near", "around", "for")
        return _LIKELY if is_place or kind in ("date", "link", "expression") else _FITS

    def _side(self, mention: Mention, prop: Parameter) -> int:
        """Say whether `from` or `to` before the value tells on which side of a pair it stands."""
        before = mention.first - 1 - (self.question.lower(mention.first - 1) in ("the", "degrees"))
        side = _SIDES.get(self.question.lower(before), "")
        return _FITS if not side or not prop.side else _NAMED if side == prop.side else _NO

    def _is_named(self, prop: Parameter, first: int, last: int) -> bool:
        """Whether the parameter's name stands before or after the value: `radius of 5`, `3 bedrooms`."""
        index = first - 1
        while self.question.lower(index) in _BETWEEN:
            index -= 1
        if self.question.kind(first) in ("number", "code") and [self.question.stem(last + 1)] == prop.heads:
            return True
        near = [self.question.stem(at) for at in range(max(0, index - len(prop.words)), index + 1)]
        return bool(near) and near[-1] in prop.stems and set(prop.heads) <= set(near)

    def _fill_switches(self) -> None:
        """Set a boolean to true if the question names it. Questions that negate anything are never matched."""
        for prop in self.tool.parameters:
            heads = [head for head in prop.heads if head not in _SWITCHES]
            if prop.is_switch and heads and self.question.stems.issuperset(heads):
                self.arguments[prop.name] = next((value for value in prop.values if str(value).lower() == "true"), True)

    def _fill_examples(self) -> None:
        """Fill a text with the only value that its description quotes and the question names."""
        for prop in self._unset():
            if prop.type == "string" and prop.kind == "text" and not prop.values:
                mentions = [item for item in self._listed(prop, prop.examples) if item.first not in self.used]
                if len(mentions) == 1:
                    self._take(prop, mentions[0])

    def _fill_bare(self, prop: Parameter) -> bool:
        """Give the words that nothing else accounts for to the one text that is missing: `lamps` for `item`."""
        if prop.type != "string" or prop.values or prop.kind not in ("text", "person"):
            return False
        bare = [at for at in self.unexplained() if self.question.kind(at) == "word"]
        head, lower, stem = prop.heads[-1], self.question.lower, self.question.stem
        beside = [at for at in bare if stem(at - 1) == head or (stem(at + 1) == head and lower(at - 1) == "the")]
        chosen = beside if len(beside) == 1 else bare
        most = 1 if sum(other.type == "string" for other in self._unset()) > 1 else 3
        if not 1 <= len(chosen) <= most or chosen[-1] - chosen[0] != len(chosen) - 1:
            return False
        words = [self.question.tokens[at][0].removesuffix("'s") for at in chosen]
        is_counted = lower(chosen[0] - 1) == "many" or chosen[0] - 1 in self.used
        words[-1] = english.singular(words[-1]) if is_counted else words[-1]
        self.has_bare_text = len(beside) != 1 and not is_counted
        self._take(prop, Mention("bare", " ".join(words), chosen[0], chosen[-1]))
        return True

    def unexplained(self) -> list[int]:
        """Return the indexes of the words that neither the tool nor an argument accounts for."""
        known = self.tool.known_stems(self.arguments)
        plain = _PLAIN | _FILLING if self.tool.is_read_only else _PLAIN
        return [
            at
            for at, word in enumerate(self.question.lowers)
            if at not in self.used and self.question.kind(at) != "mark" and self.question.stem(at) not in known
            and word not in plain and not (english.unit_of(word) and at - 1 in self.used)
        ]  # fmt: skip


def _fits(mention: Mention, prop: Parameter) -> bool:
    """Whether a value has the type and the form of a parameter."""
    value, is_text = mention.value, prop.type in ("string", "any")
    match mention.kind:
        case "number":
            is_whole = prop.type == "integer" or (prop.type == "string" and prop.kind == "id")
            return prop.type == "number" or (is_whole and isinstance(value, int))
        case "date":
            is_iso = re.search(r"(?i)yyyy-mm-dd(?!.{0,3}hh)|iso.?8601(?!.*time)", prop.description)
            is_other = re.search(r"(?i)format|yy|hh|/|month|-day|timestamp", prop.description)
            return prop.kind == "date" and bool(is_iso or not is_other)
        case "name":
            return prop.type == "string" and _fits_name(value, prop)
        case "quoted" | "link" | "code":
            return is_text and prop.kind in _KINDS_OF_TEXT[mention.kind]
    return mention.kind in (prop.kind, "list") and prop.kind in ("array", "expression")


def _fits_name(value: str, prop: Parameter) -> bool:
    """Whether a proper name is what the description asks for, and not a code or `City, State`."""
    text = prop.description.lower()
    if prop.kind not in ("place", "person", "text", "link") or not _FREE_TEXT.isdisjoint(prop.words):
        return prop.kind == "symbol" and value.isupper() and len(value) <= 5
    if "format" in text and re.search(r"city,? (?:and )?(?:state|country)|\w+, [a-z]{2}\b", text):
        return ", " in value
    is_code = re.search(r"\b(?:code|abbreviat\w*|ticker|symbol|iso)\b", text)
    return not is_code or value.isupper() or bool(re.search(r"\b(?:city|place|town)\b", text))


def _grouped(mentions: list[Mention], question: Question, kinds: list[str]) -> list[Mention]:
    """Join values that a comma or `and` connects: `Austin, TX` is one place, `1, 2 and 3` a list if there is one."""
    joined: list[Mention] = []
    for item in mentions:
        last = joined[-1] if joined else item
        between = question.lowers[last.last + 1 : item.first]
        is_state = kinds.count("place") < 2 or (str(item.value).isupper() and len(item.value) == 2)
        if "array" in kinds and between and set(between) <= {",", "and"} and last.kind in (item.kind, "list"):
            values = [*(last.value if last.kind == "list" else [last.value]), item.value]
            joined[-1] = Mention("list", values, last.first, item.last)
        elif last.kind == item.kind == "name" and between == [","] and is_state:
            joined[-1] = Mention("name", question.span(last.first, item.last), last.first, item.last)
        else:
            joined.append(item)
    return joined


def _expression(question: Question) -> Mention | None:
    """Return the only arithmetic expression in a question, as the calculator reads it."""
    matches = list(_EXPRESSION.finditer(question.text))
    if len(matches) != 1:
        return None
    indexes = [at for at, token in enumerate(question.tokens) if token.start() in range(*matches[0].span())]
    text = re.sub(r"(?<=\d),(?=\d{3})", "", matches[0][0].strip())
    for word, sign in _SIGNS.items():
        text = re.sub(rf"(?i)\b{word}\b", sign, text)
    is_odd = text.count("(") != text.count(")") or re.search(r"\bof\b", re.sub(r"%\s+of\b", "", text))
    return None if is_odd else Mention("expression", text, indexes[0], indexes[-1])
