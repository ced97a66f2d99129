"""Words that mean the same to whoever asks for something: each line one meaning, named by its first word."""

from wasat.providers.offline.reading.stems import stem

_SAME = """
find search look seek discover explore locate lookup searching
get fetch retrieve obtain show display list view see check read return
buy purchase order acquire
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
buy shop shopping
stock share ticker
big large huge
small little tiny
fast quick rapid speed velocity
distance far
route direction path navigate
event happening
remind reminder alarm
event meeting appointment
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
begin start
light lamp
turn switch
repair fix maintenance
sort arrange rank
picture photo image
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


def meanings(lower: str) -> tuple[str, ...]:
    """What a word stands for: its stem, and after it the meanings that it shares with others."""
    if lower in _BOOKING:
        return _BOOKING[lower]
    plain = stem(lower.removesuffix("'s"))
    return (plain, *_MEANINGS.get(plain, ()))


def _read() -> dict[str, tuple[str, ...]]:
    known: dict[str, tuple[str, ...]] = {}
    for line in _SAME.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for one in group:
            known[one] = (*known.get(one, ()), "≈" + group[0])
    return known


_MEANINGS = _read()
