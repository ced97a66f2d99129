"""Words of a text: where they stand, and what they have in common with other words."""

import re

from msgspec import Struct

from midspan.providers.offline.reading.meanings import concepts

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])|(?<=[0-9])(?=[A-Z])")


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP = word_set(
    "a an the this that these those it its i me my mine we us our you your he she him her his they them their who whom "
    "whose which what when where why how is are was were be been being am do does did done have has had having will "
    "would shall should can could may might must to of in on at by for from with about into onto over under between "
    "within as if or and but so than then too very just also please thanks thank hi hello hey there here not no yes ok "
    "up out off any some all each every both either more most much many other another such same own like via per let "
    "lets let's i'm i'd i'll i've what's it's that's how's where's who's don't want need wish "
    "help tell give know one using use used given provide based specific specified"
)

GENERIC = word_set(
    "get find search calcul creat convert function data inform api tool user valu name number type id list updat delet "
    "start stop return provid servic specif retriev detail result request process perform option paramet "
    "current avail system item object"
)
"""What so many tools say of themselves that it tells little about any."""

ACTING = word_set(
    "delete remove erase clear drop cancel abort revoke transfer pay send email mail message text call phone notify "
    "order buy purchase sell book reserve rent create add make insert write post publish upload submit update change "
    "modify edit set adjust move rename reschedule schedule play pause resume start stop run execute open close turn "
    "switch lock unlock enable disable invite assign approve reject refund return ship deploy restart reboot install "
    "block ban share charge withdraw deposit subscribe unsubscribe register enroll log archive merge copy dim print "
    "save store trigger launch shutdown"
)
"""What is called by one of these changes something."""

TELLING = word_set(
    "analyse analyze calculate check compare compute convert determine display estimate evaluate fetch find generate "
    "get identify list look obtain plan predict recommend remind retrieve search see show solve suggest translate view"
)
"""With these people ask, whatever it is that they ask for."""


class Word(Struct, frozen=True, gc=False):
    """A word, where it stands, and the concepts it may be an instance of."""

    text: str
    lower: str
    start: int
    end: int
    concepts: tuple[str, ...]


def words(text: str) -> list[Word]:
    found = []
    for match in _WORD.finditer(text):
        lower = match[0].lower().replace("\u2019", "'")
        found.append(Word(match[0], lower, match.start(), match.end(), concepts(lower)))
    return found


def name_words(name: str) -> list[Word]:
    """The words of an identifier: `getUser_name2` is get, user, name and 2."""
    return words(" ".join(_CAMEL.split(name)).replace("_", " "))


def concepts_of(text: str) -> frozenset[str]:
    """All that these words stand for."""
    return frozenset(concept for word in text.split() for concept in concepts(word))
