"""What words stand for: their stems, and the meanings that they share with others."""

from functools import lru_cache

# Each line is one meaning, named by its first word.
_SAME = """
find search look seek discover explore locate lookup searching
get fetch retrieve obtain show display list view see check read return
buy purchase order acquire shop shopping
reserve reservation booking
cancel abort revoke
create make add new insert generate produce build
delete remove erase drop
update change modify edit alter adjust set
send deliver dispatch transmit
start begin initiate launch run execute play
stop end halt terminate finish close
convert conversion exchange transform change
calculate compute calculation determine evaluate work solve estimate
compare comparison versus
weather forecast temperature rain rainy snow sunny umbrella cloudy warm cold hot windy humid humidity
time clock hour
movie film cinema
song music track tune concert
restaurant eat dining dinner cuisine eatery lunch
recipe cook dish meal cooking
house home property apartment
car vehicle automobile
cab taxi ride
flight fly plane airline
hotel accommodation stay lodging
train rail
doctor physician
price cost fare rate worth expensive
money cash fund currency payment
message sms
mail email
phone telephone call
photo picture image
language translate translation
country nation
city town
person people individual human
contact address
firm company corporation business
job occupation career
stock share ticker
big large huge
small little tiny
fast quick rapid speed velocity
distance far
route direction path navigate
remind reminder alarm
event happening meeting appointment
learn study course
news headline article
size dimension
probability chance odds likelihood
average mean
difference subtract minus
sum total plus
multiply times product
divide quotient
statistic stat
information info detail data
description describe explain
light lamp
turn switch
repair fix maintenance
sort arrange rank
nearby near close closest nearest
employee staff worker
customer client
author writer written wrote
director directed
actor actress starring star cast
game match
law legal lawsuit court
illness disease sickness
drug medicine medication
school college university
teacher professor
student pupil
birth born birthday
death died dead
father mother parent
todo task
say translate
"""
_BOOKING = {"book": ("book", "reserv"), "booked": ("reserv",), "booking": ("reserv",)}
"""Of these some forms are a thing to read and a thing to do."""


@lru_cache(maxsize=20_000)
def concepts(lower: str) -> tuple[str, ...]:
    """What a word stands for: its stem, and after it the meanings that it shares with others."""
    if lower in _BOOKING:
        return _BOOKING[lower]
    plain = stem(lower.removesuffix("'s"))
    return (plain, *_MEANINGS.get(plain, ()))


def stem(word: str) -> str:
    """The word without its endings; crude, but the same for all of its forms."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4 - (ending in ("ed", "ing")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lse":
        word = word[:-1]
    while len(word) > 3 and word[-1] in "eiy":
        word = word[:-1]
    return word


_WRITTEN = (
    "ization ational fulness ation ition ement ment ional ative able ible ator ness ated ating ally ical ance ence "
    "ing ion ive ate ity ous ful ed er or ly al ic ist"
)
_ENDINGS = _WRITTEN.split()


def _read() -> dict[str, tuple[str, ...]]:
    known: dict[str, tuple[str, ...]] = {}
    for line in _SAME.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for one in group:
            known[one] = (*known.get(one, ()), "≈" + group[0])
    return known


_MEANINGS = _read()
