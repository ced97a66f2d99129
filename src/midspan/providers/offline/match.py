"""Reads a question as a call of one tool; fails where an argument has no reading or more than one."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from midspan.providers.offline import language as english
from midspan.providers.offline.declaration import Parameter, Tool
from midspan.providers.offline.language import Mention, Question

LISTED, _NAMED, _MEASURED, _LIKELY, _FITS, _BARE, _NO = 9, 4, 3, 2, 1, 0, -1
"""How clearly a value belongs to a parameter: it is listed, or the name, the unit, the kind or only the type fits."""
_PLAIN, _BETWEEN, _FILLING = english.STOP | english.ASKING, english.words("between"), english.words("filling")
_SWITCHES = english.stems(english.words("switches"))
_CUES = {cue: frozenset(names.split()) for cue, names in english.LISTS["cues"].items()}
_SIGNS = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/"}
_NUMBER, _SIGN = r"(?:\d[\d,]*\d|\d)(?:\.\d+)?%?", rf"(?:\*\*|//|[-+*/^%]|of|{'|'.join(_SIGNS)})"
_EXPRESSION = re.compile(rf"(?i)[-(\s]*(?<![\w.]){_NUMBER}[\s)!]*(?:{_SIGN}[\s(]*-?{_NUMBER}[\s)!]*)+(?!\w)")


class Match(NamedTuple):
    """A complete call."""

    tool: Tool
    arguments: dict[str, Any]
    unexplained: list[str]  # the words that neither the tool nor an argument accounts for
    certainty: int
    taken: dict[str, Mention]  # where each argument stands


class Matcher:
    """Reads one question as a call of one tool."""

    def __init__(self, tool: Tool, question: Question) -> None:
        self.tool = tool
        self.question = question
        self.arguments: dict[str, Any] = {}
        self.used: set[int] = set()  # the tokens that arguments took
        self.taken: dict[str, Mention] = {}
        self.certainty = LISTED

    def match(self) -> Match | None:
        """The one reading there is, or None."""
        if not self._fill_listed() or not self._fill_mentioned():
            return None
        self._fill_switches()
        self._fill_examples()
        missing = [prop for prop in self._unset() if prop.required]
        if len(missing) > 1 or (missing and not self._fill_bare(missing[0])):
            return None
        unexplained = [self.question.lowers[at] for at in self._unexplained()]
        return Match(self.tool, self.arguments, unexplained, self.certainty, self.taken)

    def _unset(self) -> list[Parameter]:
        return [prop for prop in self.tool.parameters if prop.name not in self.arguments]

    def _take(self, prop: Parameter, mention: Mention, certainty: int) -> None:
        is_share, is_text = mention.kind == "percent" and not prop.is_percent, prop.type == "string"
        text = self.question.tokens[mention.first].text if mention.kind == "number" and is_text else mention.value
        self.arguments[prop.name] = mention.value / 100 if is_share else text
        self.taken[prop.name] = mention
        self.used.update(range(mention.first, mention.last + 1))
        self.certainty = min(self.certainty, certainty)

    def _fill_listed(self) -> bool:
        """Fill the parameters whose values are listed; False if more values are named than can be placed."""
        groups: dict[str, list[Parameter]] = {}
        for prop in (prop for prop in self.tool.parameters if prop.values and not prop.is_switch):
            groups.setdefault(repr(prop.values), []).append(prop)
        for props in groups.values():
            found = list(self._listed(props[0], props[0].values))
            is_clear = self._place(found, props) if len(props) > 1 else len({mention.value for mention in found}) < 2
            if not is_clear:
                return False
            for mention in found if len(props) == 1 else ():
                self._take(props[0], mention, LISTED)
        return True

    def _listed(self, prop: Parameter, values: tuple[Any, ...]) -> Iterator[Mention]:
        """Those of the values that stand in the question, the longest first."""
        words_at, taken = self.question.words_at, set[int]()
        for value in sorted(values, key=lambda value: -len(str(value))):
            words = [english.stem(word) for word in english.text_words(str(value).replace("_", " "))]
            is_digit = str(value).isdigit()
            for at in range(len(words_at) - len(words) + 1 if words and words[0] not in english.STOP else 0):
                found, indexes = zip(*words_at[at : at + len(words)], strict=True)
                is_meant = "year" in prop.words or self._is_named(prop, *indexes) if is_digit else len(str(value)) > 1
                if list(found) == words and taken.isdisjoint(indexes) and is_meant:
                    taken.update(indexes)
                    yield Mention("listed", value, indexes[0], indexes[-1])

    def _fill_mentioned(self) -> bool:
        """Give every mentioned value to one parameter; False if one is left over or could belong to two."""
        mentions = [one for one in self.question.mentions if one.first not in self.used and not self._is_own_word(one)]
        kinds = [prop.kind for prop in self.tool.parameters]
        expression = _expression(self.question) if "expression" in kinds else None
        if expression is not None:
            mentions = [one for one in mentions if not expression.first <= one.first <= expression.last] + [expression]
        mentions = _joined_places(mentions, self.question, always=kinds.count("place") < 2)
        return self._place(mentions, [prop for prop in self._unset() if not prop.values])

    def _is_own_word(self, mention: Mention) -> bool:
        """Whether a value is a word of the tool, such as BMI, or `two` for two numbers."""
        if mention.value == "today":
            return not any(prop.kind in ("date", "time") for prop in self.tool.parameters)
        is_word = mention.kind == "name" or self.question.lower(mention.first) == "two"
        return is_word and english.stems(english.text_words(self.question.span(*mention[2:]))) <= self.tool.vocabulary

    def _place(self, mentions: list[Mention], props: list[Parameter]) -> bool:
        """Pair values and parameters, the clearest pairs first; False if a value is left."""
        scores = {(a, b): self._score(one, prop) for a, one in enumerate(mentions) for b, prop in enumerate(props)}

        def settle(pairs: list[tuple[int, int]]) -> bool:
            """Take the pairs of which neither side has another partner."""
            clear = [(a, b) for a, b in pairs if sum(a == x or b == y for x, y in pairs) == 1]
            for a, b in clear:
                self._take(props[b], mentions[a], scores[a, b])
            for a, b in [(a, b) for a, b in scores if any(a == x or b == y for x, y in clear)]:
                del scores[a, b]
            return bool(clear)

        for level in (_NAMED, _MEASURED, _LIKELY):
            settle([pair for pair, score in scores.items() if score >= level])
        while True:
            fitting = [pair for pair, score in scores.items() if score >= _FITS]
            needed = [(a, b) for a, b in fitting if props[b].required]
            if not settle(needed) and not settle([(a, b) for a, b in fitting if a not in {x for x, _ in needed}]):
                return all(mention.first in self.used for mention in mentions)

    def _score(self, mention: Mention, prop: Parameter) -> int:
        """How clearly the question ties a value to a parameter."""
        if mention.kind == "listed":
            return self._side(mention, prop)
        if not _fits(mention, prop) or self._contradicts(mention, prop):
            return _NO
        before = self.question.lower(mention.first - 1)
        has_cue = self._side(mention, prop) == _NAMED or not _CUES.get(before, frozenset()).isdisjoint(prop.words)
        is_text = mention.kind in ("name", "quoted", "link")
        if (is_text and has_cue) or self._is_named(prop, mention.first, mention.last):
            return _NAMED
        if mention.kind == "number" and self._unit(mention) in prop.units:
            return _MEASURED
        is_place = mention.kind == "name" and prop.kind == "place" and before in ("in", "at", "near", "around", "for")
        if is_place or mention.kind in ("date", "link", "expression"):
            return _LIKELY
        return _NO if mention.kind == "name" and prop.is_category else _FITS

    def _side(self, mention: Mention, prop: Parameter) -> int:
        """Whether `from`, `to` or a number before the value says on which side of a pair it stands."""
        before = mention.first - 1 - (self.question.lower(mention.first - 1) in ("the", "degrees"))
        side = {"from": "from", "to": "to", "into": "to"}.get(self.question.lower(before), "")
        if mention.kind == "listed" and before >= 0 and self.question.tokens[before].kind == "number":
            side = "from"
        elif mention.kind == "listed" and self.question.lower(before) == "in":
            side = "to"
        return _FITS if not side or not prop.side else _NAMED if side == prop.side else _NO

    def _is_named(self, prop: Parameter, first: int, *more: int) -> bool:
        """Whether the parameter's name stands before or after the value: `radius of 5`, `a = 2`, `3 bedrooms`."""
        lower, index = self.question.lower, first - 1
        if len(prop.name) == 1:
            while lower(index) in ("=", "is", ":", "of"):
                index -= 1
            return index < first - 1 and lower(index) == prop.name.lower()
        after = (more[-1] if more else first) + 1
        after += bool(english.unit_of(lower(after))) and self.question.stem(after) != prop.heads[0]
        is_counted = len(prop.heads) == 1 and self.question.tokens[first].kind in ("number", "code")
        if is_counted and lower(after) and english.same_stem(self.question.stem(after), prop.heads[0]):
            return True
        while first - index <= 4 and lower(index) in _BETWEEN:
            index -= 1
        near = [self.question.stem(at) for at in range(max(0, index - len(prop.words)), index + 1)]
        is_close = near and (near[-1] in prop.stems or english.same_stem(near[-1], prop.heads[-1]))
        return bool(is_close) and all(any(english.same_stem(word, head) for word in near) for head in prop.heads)

    def _contradicts(self, mention: Mention, prop: Parameter) -> bool:
        """Whether the value counts things, has another unit or stands on the other side of a pair."""
        before, after = self.question.lower(mention.first - 1), self.question.lower(mention.last + 1)
        if mention.kind == "number":
            is_count = before == self.question.verb or after.endswith("s") or bool(self._unit(mention))
            has_other_unit = bool(prop.units) and self._unit(mention) not in {"", *prop.units}
            return has_other_unit or ("id" in prop.words and is_count)
        return mention.kind in ("name", "quoted", "link") and self._side(mention, prop) == _NO

    def _unit(self, mention: Mention) -> str:
        sign = re.sub(r"[\d.,]", "", self.question.tokens[mention.first].text)
        return english.unit_of(sign) or english.unit_of(self.question.lower(mention.last + 1))

    def _fill_switches(self) -> None:
        """Set a boolean to true if the question names it. Questions that negate anything are never matched."""
        for prop in self.tool.parameters:
            heads = [head for head in prop.heads if head not in _SWITCHES]
            if prop.is_switch and heads and self.question.stems.issuperset(heads):
                self.arguments[prop.name] = next((value for value in prop.values if str(value).lower() == "true"), True)

    def _fill_examples(self) -> None:
        """Fill a text with the one value that its description quotes and the question names."""
        texts = [prop for prop in self._unset() if prop.type == "string" and prop.kind == "text" and not prop.values]
        for prop in texts:
            found = [one for one in self._listed(prop, prop.examples) if one.first not in self.used]
            if len(found) == 1:
                self._take(prop, found[0], _LIKELY)

    def _fill_bare(self, prop: Parameter) -> bool:
        """Give the words that nothing else accounts for to the one text that is missing: `lamps` for `item`."""
        if prop.type != "string" or prop.values or prop.kind not in ("text", "person"):
            return False
        bare = [at for at in self._unexplained() if self.question.tokens[at].kind == "word"]
        head, lower, word = prop.heads[-1], self.question.lower, self.question.stem
        beside = [at for at in bare if word(at - 1) == head or (word(at + 1) == head and lower(at - 1) == "the")]
        texts = [one for one in self._unset() if one.type == "string"]
        chosen = beside if len(beside) == 1 else bare
        if not 1 <= len(chosen) <= (1 if len(texts) > 1 else 3) or chosen[-1] - chosen[0] != len(chosen) - 1:
            return False
        words = [self.question.tokens[at].text.removesuffix("'s") for at in chosen]
        is_counted = lower(chosen[0] - 1) == "many" or chosen[0] - 1 in self.used
        words[-1] = english.singular(words[-1]) if is_counted else words[-1]
        certainty = _LIKELY if len(beside) == 1 else _FITS if is_counted else _BARE
        self._take(prop, Mention("bare", " ".join(words), chosen[0], chosen[-1]), certainty)
        return True

    def _unexplained(self) -> list[int]:
        """The indexes of the words that nothing accounts for."""
        known = self.tool.known_stems(self.arguments)
        return [
            at
            for at, token in enumerate(self.question.tokens)
            if at not in self.used and token.kind != "mark" and not self._is_plain(at)
            and not any(english.same_stem(self.question.stem(at), word) for word in self.tool.name_stems)
            and self.question.stem(at) not in known
        ]  # fmt: skip

    def _is_plain(self, at: int) -> bool:
        """Whether a word says nothing by itself: a function word, a verb of asking, the unit of a number."""
        word = self.question.lowers[at]
        is_filling = self.tool.is_read_only and (word in _FILLING or word == "today")
        return word in _PLAIN or is_filling or (bool(english.unit_of(word)) and at - 1 in self.used)


def _fits(mention: Mention, prop: Parameter) -> bool:
    """Whether a value has the type and the form of a parameter."""
    value, is_text = mention.value, prop.type in ("string", "any")
    match mention.kind:
        case "number":
            is_whole = prop.type == "integer" or (prop.type == "string" and prop.kind == "id")
            return prop.type == "number" or (is_whole and isinstance(value, int))
        case "percent":
            return prop.type == ("integer" if prop.is_percent else "number")
        case "date":
            form = re.search(r"(?i)yyyy-mm-dd|iso ?8601|format|yy|/|month|-day", prop.description)
            is_iso = form is None or form[0].lower().startswith(("yyyy-mm-dd", "iso"))
            return prop.kind == "date" and is_iso
        case "day":
            return is_text and value in prop.examples
        case "link" | "expression":
            return prop.kind == mention.kind or (prop.type, prop.kind, mention.kind) == ("string", "text", "link")
        case "code":
            return is_text and prop.kind in ("id", "symbol", "text")
        case "quoted":
            return is_text and prop.kind != "expression"
        case "name":
            return prop.type == "string" and _fits_name(value, prop)
    return False


def _fits_name(value: str, prop: Parameter) -> bool:
    """Whether a proper name is what the description asks for, and not a code or `City, State`."""
    text = prop.description.lower()
    if prop.kind not in ("place", "person", "text", "link"):
        return prop.kind == "symbol" and value.isupper() and len(value) <= 5
    if "format" in text and re.search(r"city,? (?:and )?(?:state|country)|\w+, [a-z]{2}\b", text):
        return ", " in value
    is_code = re.search(r"\b(?:code|abbreviat\w*|ticker|symbol|format|iso)\b", text)
    return not is_code or bool(re.search(r"\b(?:city|place|town)\b", text)) or ("iso" not in text and value.isupper())


def _joined_places(mentions: list[Mention], question: Question, *, always: bool) -> list[Mention]:
    """Two names with a comma between them as one place: Austin, TX."""
    joined = mentions[:1]
    for before, mention in pairwise(mentions):
        is_pair = before.kind == mention.kind == "name" and question.lowers[before.last + 1 : mention.first] == [","]
        if is_pair and (always or (mention.value.isupper() and len(mention.value) == 2)):
            first = joined.pop().first
            joined.append(Mention("name", question.span(first, mention.last), first, mention.last))
        else:
            joined.append(mention)
    return joined


def _expression(question: Question) -> Mention | None:
    """The one arithmetic expression in a question, as the calculator writes it."""
    found = list(_EXPRESSION.finditer(question.text))
    if len(found) != 1:
        return None
    indexes = [at for at, token in enumerate(question.tokens) if found[0].start() <= token.start < found[0].end()]
    text = re.sub(r"(?<=\d),(?=\d{3})", "", found[0][0].strip())
    for word, sign in _SIGNS.items():
        text = re.sub(rf"(?i)\b{word}\b", sign, text)
    is_odd = text.count("(") != text.count(")") or re.search(r"\bof\b", re.sub(r"%\s+of\b", "", text))
    return None if is_odd else Mention("expression", text, indexes[0], indexes[-1])
