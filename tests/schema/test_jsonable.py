"""Values of every type as JSON."""

import array
import datetime
import decimal
import enum
import math
import pathlib
import types
import uuid
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest

from midspan._schema.jsonable import to_jsonable
from midspan.errors import ResultError


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


Bare = namedtuple("Bare", "a b")  # noqa: PYI024 - one without hints is meant


class Place(NamedTuple):
    x: float
    y: float = 0.0


@dataclass
class Trip:
    start: Place
    days: set[int] = field(default_factory=set)


class Parcel(msgspec.Struct, rename="camel", tag="parcel", omit_defaults=True):
    weight_grams: int = 0
    place: Place | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


class Shout(str):
    __slots__ = ()


class Numbers:
    """As numpy's arrays and numbers do."""

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (0.5, 0.5),
        ("ä", "ä"),
        (Shout("hi"), "hi"),
        ([1, (2, 3)], [1, [2, 3]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({1, "a"}), ["a", 1]),
        ({1: "a", Colour.RED: 2, datetime.date(2024, 1, 1): 3}, {"1": "a", "red": 2, "2024-01-01": 3}),
        (datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC), "2024-01-02T03:00:00Z"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        (datetime.timedelta(hours=1), "PT3600S"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (b"hi", "aGk="),
        (bytearray(b"hi"), "aGk="),
        (memoryview(b"hi"), "aGk="),
        (pathlib.Path("a/b"), "a/b"),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, 2]),
        (Place(1.5), {"x": 1.5, "y": 0.0}),
        (Bare(1, [Place(2.5)]), {"a": 1, "b": [{"x": 2.5, "y": 0.0}]}),
        (Trip(Place(1.5), {2, 1}), {"start": {"x": 1.5, "y": 0.0}, "days": [1, 2]}),
        (Parcel(5, Place(1.0)), {"type": "parcel", "weightGrams": 5, "place": {"x": 1.0, "y": 0.0}}),
        (Parcel(), {"type": "parcel", "weightGrams": 0, "place": None}),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict({"a": Place(1.0)}), {"a": {"x": 1.0, "y": 0.0}}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        (array.array("i", [1]), [1]),
        (Numbers(), [1, 2]),
        (msgspec.Raw(b'{"a":1}'), {"a": 1}),
    ],
    ids=lambda value: type(value).__name__,  # the same in every worker process
)
def test_values_are_converted_to_json_data(value, said):
    result = to_jsonable(value)
    assert result == said
    assert msgspec.json.decode(msgspec.json.encode(result)) == said or isinstance(said, int)


class Table:
    """As the tables of pandas: a length, columns, and no Sequence."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter(["a", "b"])

    def __contains__(self, name: object) -> bool:
        return name in ("a", "b")


class Broken:
    def tolist(self) -> Any:
        raise RuntimeError("not today")


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "an object is not JSON serializable"),
        ({"a": [1, object()]}, "a[1]: an object is not JSON serializable"),
        (Trip(Place(math.nan)), "start.x: JSON has no number for nan"),
        ([math.inf], "[0]: JSON has no number for inf"),
        ({"a": "\ud800"}, "surrogates not allowed"),
        ({"\ud800": 1}, "surrogates not allowed"),
        ({(1, 2): 3}, "it is not JSON serializable: TypeError"),
        ({"a": {1: 2, "1": 3}}, "a: two of its keys, such as 1 and '1', are the same in JSON"),
        ((item for item in [1]), "a generator is not JSON serializable"),
        (ValueError("x"), "a ValueError is not JSON serializable"),
        (1j, "a complex is not JSON serializable"),
        (print, "a builtin_function_or_method is not"),
        (Broken(), "RuntimeError: not today"),
        (ENDLESS, "it contains itself"),
        ([Table()], "[0]: a Table is not JSON serializable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_is_not_json_serializable_is_an_error_with_its_path(value, words):
    with pytest.raises(ResultError) as caught:
        to_jsonable(value)
    assert words in str(caught.value)


def test_the_error_message_can_always_be_encoded():
    with pytest.raises(ResultError) as caught:
        to_jsonable({"\ud800": {"\n": object()}})
    assert str(caught.value).encode().isascii()
    assert "\n" not in str(caught.value)


def test_the_result_shares_no_container_with_the_value():
    value = {"a": [1]}
    said = to_jsonable(value)
    said["a"].append(2)
    assert value == {"a": [1]}


def test_plain_data_is_converted_without_a_call_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec, "to_builtins", None)
    assert to_jsonable({"a": [{"b": 1}]}) == {"a": [{"b": 1}]}
