"""English as the offline model reads it: word lists, stems, and the values that a question mentions."""

import re
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

LISTS: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath("words.json").read_bytes())


def words(name: str) -> frozenset[str]:
    """A list of words.json."""
    return frozenset(LISTS[name].split())


STOP, ASKING, DAYS, NEGATING = words("stop"), words("asking"), words("days"), words("negating")
_UNITS = {form: unit for unit, forms in LISTS["units"].items() for form in (unit, f"{unit}s", *forms.split())}
_NUMBERS = {word: value for value, word in enumerate(LISTS["numbers"].split(), 2)}
_SUFFIX = re.compile(r"(?:ational|ations?|ating|ators?|ated|ates?|ically|ical|ings?|ments?|ied|ed|ly)$")
_NO_SINGULAR = re.compile(r"(?:[siu]s|jeans|scissors|pants|trousers|glasses|headphones|shorts|news|series|clothes)$")
_TOKEN = re.compile(
    r"""
    (?P<quoted>"[^"\n]{1,300}"|(?<!\w)'[^'\n]{1,200}'(?!\w)|`[^`\n]+`|“[^”]+”|«[^»]+»)
  | (?P<link>(?:https?://|www\.)[^\s'"<>]+[^\s'"<>.,;:?!)]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
  | (?P<date>\b\d{4}(?:-\d{2}-\d{2}|/\d{2}/\d{2})\b)
  | (?P<number>(?<![\w.])[-+\#]?[$€£¥]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,2})?%?(?!\w|[.,/:-]\d|-\w))
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
OPPOSITES = {"on": "off", "off": "on", "in": "out", "out": "in", "up": "down", "down": "up"}
_NOT_NAMES = frozenset(("i", "id", "ids", "url", "uri", "uuid", "api", "ip", "gps"))
_JOINING = frozenset(("of", "&", "de", "del", "di", "da", "la", "le", "du", "van", "von"))


def name_words(name: str) -> list[str]:
    """The words of an identifier: `getUser_id` is get, user, id."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def text_words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"[^\W_]+(?:'[a-z]+)?", text.lower())


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A short form that the inflections of one word share."""
    word = word.lower().removesuffix("'s")
    if len(word) <= 3:
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = re.sub(r"(?<=[sxz])es$|(?<=[cs]h)es$", "", word).removesuffix("s")
    cut = _SUFFIX.sub("", word)
    cut = re.sub(r"(?:ie|y)$", "i", cut if len(cut) >= 3 else word)
    cut = cut.removesuffix("e") if len(cut) > 3 else cut
    return cut[:-1] if len(cut) > 3 and cut[-1] == cut[-2] and cut[-1] not in "sl" else cut


def stems(words: Any) -> frozenset[str]:
    return frozenset(map(stem, words))


def same_stem(word: str, other: str) -> bool:
    """Whether two stems are those of one word, or one is a short form of the other: temp, temperature."""
    return word == other or (min(len(word), len(other)) >= 3 and (word.startswith(other) or other.startswith(word)))


def unit_of(word: str) -> str:
    """The one name of a unit for all its spellings; empty if the word is not a unit."""
    return str(_UNITS.get(word.lower(), ""))


def singular(word: str) -> str:
    """A common noun in the singular, or a verb without the ending of the third person."""
    if len(word) < 4 or _NO_SINGULAR.search(word):
        return word
    return re.sub(r"ies$", "y", re.sub(r"(?<=ss|ch|sh)es$|(?<=[xz])es$|(?<!ie)s$", "", word))


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class Mention(NamedTuple):
    """A value that stands in the question, and the first and the last token that it takes up."""

    kind: str
    """The kind of its token, or percent, name, day (such as tomorrow), listed, expression, bare or unclear."""
    value: Any
    first: int
    last: int


class Question:
    """The tokens of a text, and what they say."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()[:4000].translate(_QUOTES)  # Python refuses to parse much longer integers
        self.tokens = [Token(match.lastgroup or "", match[0], *match.span()) for match in _TOKEN.finditer(self.text)]
        self.lowers = [_CONTRACTED.sub(r"\1\2", token.text.lower()) for token in self.tokens]
        plain = [word for word, token in zip(self.lowers, self.tokens, strict=True) if token.kind == "word"]
        self.words_at = [(stem(word), at) for at, lower in enumerate(self.lowers) for word in text_words(lower)]
        """The stem of every word with the index of its token; quoted text is taken apart."""
        self.stems = stems(plain)
        self.content = [word for word in plain if word not in STOP]  # without function words
        self.is_negated = any(word in NEGATING or word.endswith("n't") for word in plain)
        self._polite = "".join(_POLITE.findall(self.text)[:1]).lower()
        self.verb_at = sum(token.start < len(self._polite) for token in self.tokens)
        self.verb = first if (first := self.lower(self.verb_at)) not in STOP else ""
        """The verb of a command, in the imperative or after a polite form."""
        self.is_imperative = not re.search(r"\bi\b|help", self._polite)

    def lower(self, index: int) -> str:
        """The token at an index in lower case; empty outside of the question."""
        return self.lowers[index] if 0 <= index < len(self.tokens) else ""

    def stem(self, index: int) -> str:
        return stem(self.lower(index))

    def span(self, first: int, last: int) -> str:
        """The text of the tokens first to last, as it was written."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def commands(self, verbs: frozenset[str]) -> bool:
        """Whether the verb of this question is one of these, with the same particle."""
        for verb, _, particle in (verb.partition(" ") for verb in verbs):
            if verb == self.verb and not particle:
                return self.lower(self.lowers.index(verb) + 1) not in ("me", "us", *OPPOSITES)
            if verb == self.verb and particle in self.lowers:
                return OPPOSITES[particle] not in self.lowers
        return False

    @property
    def is_one_request(self) -> bool:
        """Whether the text is one sentence, and a question only in form: `Can you …?`."""
        sentence = self.text.rstrip(" .!?")
        is_asked = self.text.endswith("?") and not re.search(r"\b(?:can|could) you", self._polite)
        return not re.search(r"[.!?;]\s|\n", sentence) and not is_asked and "ll you" not in self._polite

    @cached_property
    def mentions(self) -> list[Mention]:
        """All values in order; none overlaps another."""
        found: list[Mention] = []
        for index, token in enumerate(self.tokens):
            mention = None if found and index <= found[-1].last else self._mention(token.kind, token.text, index)
            if mention is not None:
                goes_on = re.match(r"[#+/*^=\\]|\.\w", self.text[self.tokens[mention.last].end :])
                found.append(mention._replace(kind="unclear") if goes_on else mention)
        return found

    def _mention(self, kind: str, text: str, index: int) -> Mention | None:
        plain = {"quoted": text[1:-1].strip(), "link": text, "date": text.replace("/", "-")}
        if kind in plain:
            return Mention(kind, plain[kind], index, index)
        return None if kind == "mark" else self._word(index) if kind == "word" else self._number(text, index)

    def _number(self, text: str, index: int) -> Mention:
        """A number, also with a percent sign or a unit; or a code with digits in it."""
        number = re.fullmatch(r"([-+#]?[$€£¥]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)(%|[a-zA-Z]*)", text)
        if number is None or (number[2] not in ("", "%") and not unit_of(number[2])):
            return Mention("code", text, index, index)
        digits = re.sub(r"[^\d.eE+-]", "", number[1])
        value = float(digits) if re.search(r"[.eE]", digits) else int(digits)
        is_scaled = self.lower(index + 1) in ("hundred", "thousand", "million", "billion")
        kind = "unclear" if is_scaled else "percent" if number[2] == "%" else "number"
        return Mention(kind, value, index, index)

    def _word(self, index: int) -> Mention | None:
        lower = self.lowers[index]
        if lower in _NUMBERS:
            return Mention("number", _NUMBERS[lower], index, index)
        if lower in DAYS:
            return Mention("day", lower, index, index)
        is_plain = lower in STOP or (unit_of(lower) and not self.tokens[index].text.isupper())
        if not self._is_capital(index) or (is_plain and not self._is_capital(index + 1)):
            return None
        last = index
        while self._is_capital(last + 1) or (self.lower(last + 1) in _JOINING and self._is_capital(last + 2)):
            last += 1 if self._is_capital(last + 1) else 2
        return Mention("name", self.span(index, last).removesuffix("'s"), index, last)

    def _is_capital(self, index: int) -> bool:
        """Whether a word is capitalised as a name is, and not because it begins a sentence."""
        if not 0 < index < len(self.tokens) or self.tokens[index].kind != "word":
            return False
        before = self.tokens[index - 1].text
        is_apart = before.endswith("'s") or before in (".", "?", "!", ":")
        return self.tokens[index].text[0].isupper() and self.lowers[index] not in _NOT_NAMES | DAYS and not is_apart
