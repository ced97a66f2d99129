"""English as the offline model reads it: word lists, stems, and the values that a question mentions."""

import re
from datetime import date
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

LISTS: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath("words.json").read_bytes())


def words(name: str) -> frozenset[str]:
    """Return a list of words.json."""
    return frozenset(LISTS[name].split())


STOP, ASKING, DAYS, NEGATING = words("stop"), words("asking"), words("days"), words("negating")
_UNITS = {form: unit for unit in words("units_without_forms") for form in (unit, f"{unit}s")}
_UNITS |= {form: unit for unit, forms in LISTS["units"].items() for form in (unit, f"{unit}s", *forms.split())}
_NUMBERS = {word: value for value, word in enumerate(LISTS["numbers"].split(), 2)}
_MONTHS = LISTS["months"].split()
_SUFFIX = re.compile(r"(?:ational|ations?|ating|ators?|ated|ates?|ically|ical|ings?|ments?|ied|ed|ly)$")
_NO_SINGULAR = re.compile(r"(?:[siu]s|jeans|scissors|pants|trousers|glasses|headphones|shorts|news|series|clothes)$")
_MONTH, _DAY = rf"(?i:{'|'.join(_MONTHS)})[a-z]*\.?", r"\d{1,2}(?:st|nd|rd|th)?"
_NUMBER = r"[-+\#]?[$€£¥]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,2})?%?"
_TOKEN = re.compile(
    rf"""
    (?P<quoted>"[^"\n]{{1,300}}"|(?<!\w)'[^'\n]{{1,200}}'(?!\w)|`[^`\n]+`|“[^”]+”|«[^»]+»)
  | (?P<link>(?:https?://|www\.)[^\s'"<>]+[^\s'"<>.,;:?!)]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
  | (?P<date>\b(?:\d{{4}}([-/.])\d\d?\4\d\d?|(?:{_DAY}(?:\ of)?\ {_MONTH}|{_MONTH}\ {_DAY}),?\ \d{{4}})\b)
  | (?P<number>(?<![\w.]){_NUMBER}(?!\w|[.,/:-]\d|-\w))
  | (?P<code>(?=[\w./@:\#&-]*[\d_])[A-Za-z0-9_\#](?:\w|[./@:&-](?=\w))*)
  | (?P<word>[^\W\d_]+(?:'[^\W\d_]+)*(?:-[^\W\d_]+)*)
  | (?P<mark>\S)
    """,
    re.VERBOSE,
)
_CONTRACTED = re.compile(r"^(what|who|where|when|how|it|that|there|he|she|let)'s$|^(\w+)'(?:d|ll|re|ve|m)$")
_POLITE = re.compile(
    r"(?i)^(?:(?:hi|hey|hello|please|kindly|ok|okay|now|just|go ahead and|(?:can|could|would|will) you|help me(?: to)?|"
    r"i (?:want|need|would like)(?: you)? to|i'd like(?: you)? to|let's)\b[\s,!.]*)*"
)
_QUOTES = str.maketrans("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "''")
_NOT_NAMES = frozenset(("i", "id", "ids", "url", "uri", "uuid", "api", "ip", "gps"))
_INSIDE_NAMES = frozenset(("of", "&", "de", "del", "di", "da", "la", "le", "du", "van", "von"))


def name_words(name: str) -> list[str]:
    """Split an identifier into words: `getUser_id` is get, user, id."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def text_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"[^\W_]+(?:'[a-z]+)?", text.lower())


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return a short form that the inflections of one word share."""
    word = word.lower().removesuffix("'s")
    if len(word) <= 3:
        return word
    base = singular(word)
    word = word.removesuffix("s") if base == word and not word.endswith(("ss", "us", "is")) else base
    cut = _SUFFIX.sub("", word)
    cut = re.sub(r"(?:ie|y)$", "i", cut if len(cut) >= 3 else word)
    cut = cut.removesuffix("e") if len(cut) > 3 else cut
    return cut[:-1] if len(cut) > 3 and cut[-1] == cut[-2] and cut[-1] not in "sl" else cut


def stems(words: Any) -> frozenset[str]:
    return frozenset(map(stem, words))


def unit_of(word: str) -> str:
    """Return one name for all spellings of a unit; empty if the word is not a unit."""
    return str(_UNITS.get(word.lower(), ""))


def singular(word: str) -> str:
    """Return a noun in the singular, or a verb without the ending of the third person."""
    if len(word) < 4 or _NO_SINGULAR.search(word):
        return word
    return re.sub(r"ies$", "y", re.sub(r"(?<=ss|ch|sh)es$|(?<=[xz])es$|(?<!ie)s$", "", word))


def read_date(text: str) -> str | None:
    """Read `2026/11/16`, `16th of November 2026` or `Nov 16, 2026` as `2026-11-16`; None if there is no such day."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if len(numbers) == 2:
        month = next(at for at, name in enumerate(_MONTHS, 1) if re.search(rf"\b{name}", text.lower()))
        numbers = [numbers[1], month, numbers[0]]
    try:
        return date(*numbers).isoformat()
    except ValueError:
        return None


class Mention(NamedTuple):
    """A value that stands in the question, and the first and the last token that it takes up."""

    kind: str
    """The kind of its token, or name, day (such as tomorrow), list, listed, expression, bare or unclear."""
    value: Any
    first: int
    last: int

    @property
    def tokens(self) -> range:
        return range(self.first, self.last + 1)


class Question:
    """The tokens of a text, and what they say."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()[:4000].translate(_QUOTES)  # Python refuses to parse much longer integers
        self.tokens = list(_TOKEN.finditer(self.text))
        self.lowers = [_CONTRACTED.sub(r"\1\2", token[0].lower()) for token in self.tokens]
        plain = [word for at, word in enumerate(self.lowers) if self.kind(at) == "word"]
        self.words_at = [(stem(word), at) for at, lower in enumerate(self.lowers) for word in text_words(lower)]
        """The stem of every word with the index of its token."""
        self.stems = stems(plain)
        self.content = [word for word in plain if word not in STOP]  # without function words
        self.is_negated = any(word in NEGATING or word.endswith("n't") for word in plain)
        polite = "".join(_POLITE.findall(self.text)[:1]).lower()
        self.verb_at = sum(token.start() < len(polite) for token in self.tokens)
        self.verb = "" if self.lower(self.verb_at) in STOP else self.lower(self.verb_at)
        """The verb of a command, in the imperative or after a polite form."""
        self.is_imperative = not re.search(r"\bi\b|help", polite)
        self.has_context = bool(re.search(r"[.?!]\s", self.text))  # more than one sentence
        is_asked = self.text.endswith("?") and not re.search(r"\b(?:can|could) you", polite)
        is_divided = re.search(r"[.!?;]\s|\n", self.text.rstrip(" .!?"))
        self.is_one_request = not is_divided and not is_asked and "ll you" not in polite
        """Whether the text is one sentence, and a question only in form: `Can you …?`."""

    def kind(self, index: int) -> str:
        """Return the kind of a token: quoted, link, date, number, code, word or mark; empty outside of the question."""
        return str(self.tokens[index].lastgroup) if 0 <= index < len(self.tokens) else ""

    def lower(self, index: int) -> str:
        """Return a token in lower case; empty outside of the question."""
        return self.lowers[index] if 0 <= index < len(self.tokens) else ""

    def stem(self, index: int) -> str:
        return stem(self.lower(index))

    def span(self, first: int, last: int) -> str:
        """Return the text of the tokens first to last, as it was written."""
        return self.text[self.tokens[first].start() : self.tokens[last].end()]

    @cached_property
    def mentions(self) -> list[Mention]:
        """All values in order; none overlaps another."""
        mentions: list[Mention] = []
        for index, token in enumerate(self.tokens):
            mention = None if mentions and index <= mentions[-1].last else self._mention(token[0], index)
            if mention is not None:
                continues = re.match(r"[#+/*^=\\]|\.\w", self.text[self.tokens[mention.last].end() :])
                mentions.append(mention._replace(kind="unclear") if continues else mention)
        return mentions

    def _mention(self, text: str, index: int) -> Mention | None:
        kind = self.kind(index)
        if kind in ("word", "mark"):
            return self._word(index) if kind == "word" else None
        if kind in ("number", "code"):
            return self._number(text, index)
        value = text[1:-1].strip() if kind == "quoted" else read_date(text) if kind == "date" else text
        return Mention("unclear" if value is None else kind, value, index, index)

    def _number(self, text: str, index: int) -> Mention:
        """Read a number, also with a unit; or a code with digits in it."""
        number = re.fullmatch(r"([-+#]?[$€£¥]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)(%|[a-zA-Z]*)", text)
        if number is None or (number[2] not in ("", "%") and not unit_of(number[2])):
            return Mention("code", text, index, index)
        digits = re.sub(r"[^\d.eE+-]", "", number[1])
        value = float(digits) if re.search(r"[.eE]", digits) else int(digits)
        is_scaled = number[2] == "%" or self.lower(index + 1) in ("hundred", "thousand", "million", "billion")
        return Mention("unclear" if is_scaled else "number", value, index, index)

    def _word(self, index: int) -> Mention | None:
        lower = self.lowers[index]
        if lower in _NUMBERS:
            return Mention("number", _NUMBERS[lower], index, index)
        if lower in DAYS:
            return Mention("day", lower, index, index)
        is_plain = lower in STOP or (unit_of(lower) and not self.tokens[index][0].isupper())
        if not self._is_capital(index) or (is_plain and not self._is_capital(index + 1)):
            return None
        last = index
        while self._is_capital(last + 1) or (self.lower(last + 1) in _INSIDE_NAMES and self._is_capital(last + 2)):
            last += 1 if self._is_capital(last + 1) else 2
        return Mention("name", self.span(index, last).removesuffix("'s"), index, last)

    def _is_capital(self, index: int) -> bool:
        """Whether a word is capitalised like a name, and not because it begins a sentence."""
        before = self.tokens[index - 1][0] if 0 < index < len(self.tokens) else "."
        if self.kind(index) != "word" or before.endswith("'s") or before in (".", "?", "!", ":"):
            return False
        return self.tokens[index][0][0].isupper() and self.lowers[index] not in _NOT_NAMES | DAYS
