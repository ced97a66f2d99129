"""Functions and types whose annotations are text, for test_signature.py."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, NotRequired, Required, TypedDict

import typing_extensions
from msgspec import Struct

from midspan._schema.signature import Context

if TYPE_CHECKING:
    from nowhere import Unknown


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class Options(TypedDict, total=False):
    name: Required[str]
    day: datetime.date


class Loose(TypedDict):
    name: str
    day: NotRequired[datetime.date]


class Fixed(typing_extensions.TypedDict):
    name: typing_extensions.ReadOnly[str]
    day: typing_extensions.ReadOnly[NotRequired[int]]


class FixedOptions(typing_extensions.TypedDict, total=False):
    name: typing_extensions.ReadOnly[Required[str]]
    day: typing_extensions.ReadOnly[int]


class Pair(NamedTuple):
    first: datetime.date
    second: Tree | None = None


class Letter(Struct):
    to: str
    sent: datetime.datetime | None = None


def book(day: datetime.date, tree: Tree, note: Annotated[str, "for the guest"] = "") -> Tree:
    return tree


def with_options(options: Options, loose: Loose) -> Options:
    return options


def with_pair(pair: Pair, letter: Letter) -> Pair:
    return pair


def with_context(city: str, context: Context[dict[str, int]]) -> int:
    return context[city]


def of_unknown(thing: Unknown) -> None: ...


def to_unknown(name: str) -> Unknown: ...


class Desk:
    def sign(self, name: str, day: datetime.date) -> datetime.date:
        return day

    def twin(self) -> Desk:
        return self
