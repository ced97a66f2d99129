"""Every kind of type hint: its schema, conversion of arguments, and conversion of results."""

# ruff: noqa: UP006, UP007, UP045, PYI061 - every spelling of a hint is tested, also the old ones

import asyncio
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import os
import pathlib
import re
import sys
import types
import typing
import uuid
from collections import OrderedDict, abc, namedtuple
from dataclasses import dataclass, field
from typing import (
    IO,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies

from midspan._schema.arguments import SchemaValidator
from midspan._schema.hints import SchemaBuilder
from midspan._schema.jsonable import to_jsonable
from midspan._schema.signature import signature_of
from midspan._schema.tree import without_titles
from midspan.errors import ArgumentError, SchemaError

pytestmark = pytest.mark.requirement("S0-14")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Unit(enum.StrEnum):
    """A unit of temperature."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


class Ratio(enum.Enum):
    HALF = 0.5
    WHOLE = 1


@dataclass
class Point:
    """A place on a map.

    Attributes:
        x: To the right.
    """

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    name: Annotated[str, "what it is called"]
    path: pathlib.Path = pathlib.Path("here")


@dataclass
class Node:
    value: int
    next: Optional["Node"] = None


@dataclass
class Strict:
    percent: int
    double: int = field(init=False, default=0)
    limit: Final[int] = 5

    def __post_init__(self) -> None:
        if self.percent > 100:
            raise ValueError("more than everything")
        self.double = self.percent * 2


class Film(TypedDict):
    title: Required[str]
    year: NotRequired[datetime.date]


class Partial(TypedDict, total=False):
    title: Required[str]
    year: int


class Place(NamedTuple):
    """Where it is."""

    latitude: float
    longitude: float = 0.0


Bare = namedtuple("Bare", "left right")  # noqa: PYI024 - one without hints is meant


class Parcel(msgspec.Struct, rename="camel"):
    """What is sent.

    :ivar weight_grams: How heavy it is.
    """

    weight_grams: int
    sent_on: datetime.date | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str] = []


class Sparse(msgspec.Struct):
    name: str
    note: str | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Circle:
    radius: float


@dataclass
class Box:
    width: float
    height: float


T = TypeVar("T")
Bounded = TypeVar("Bounded", bound=datetime.date)
Either = TypeVar("Either", int, str)
UserId = NewType("UserId", int)


@dataclass
class Wrapped(Generic[T]):
    content: T
    many: list[T]


CASES: list[Any] = []


def case(schema: Any, said: Any, value: Any, out: Any = None) -> Any:
    """A function that returns its parameter `value`; `out` is the result if it differs from the argument."""

    def keep(function: Any) -> Any:
        CASES.append(pytest.param(function, schema, said, value, said if out is None else out, id=function.__name__))
        return function

    return keep


@case({"type": "string"}, "Paris", "Paris")
def text(value: str) -> str:
    return value


@case({"type": "integer"}, 5, 5)
def integer(value: int) -> int:
    return value


@case({"type": "number"}, 5, 5.0, 5.0)
def number(value: float) -> float:
    return value


@case({"type": "boolean"}, True, True)
def boolean(value: bool) -> bool:
    return value


@case({"type": "null"}, None, None)
def nothing(value: None) -> None:
    return value


@case({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None)
def optional(value: Optional[str]) -> Optional[str]:
    return value


@case({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a")
def union(value: Union[int, str]) -> Union[int, str]:
    return value


@case({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "2024-02-29", datetime.date(2024, 2, 29))
def pipe(value: datetime.date | None) -> datetime.date | None:
    return value


@case({"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, "soon", "soon")
def date_or_text(value: datetime.date | str) -> datetime.date | str:
    return value


@case({"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, "2024-01-01", datetime.date(2024, 1, 1))
def date_before_text(value: datetime.date | str) -> datetime.date | str:
    return value


@case(
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"radius": {"type": "number"}},
                "required": ["radius"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"width": {"type": "number"}, "height": {"type": "number"}},
                "required": ["width", "height"],
                "additionalProperties": False,
            },
        ]
    },
    {"width": 1.0, "height": 2.0},
    Box(1.0, 2.0),
)
def union_of_dataclasses(value: Circle | Box) -> Circle | Box:
    return value


@case({"type": "string", "enum": ["a", "b"]}, "b", "b")
def literal(value: Literal["a", "b"]) -> Literal["a", "b"]:
    return value


@case({"enum": ["red", 1, True, None]}, True, True)
def literal_of_all_kinds(value: Literal[Colour.RED, 1, True, None]) -> Literal[Colour.RED, 1, True, None]:
    return value


@case({"type": "string", "enum": ["red"]}, "red", Colour.RED)
def literal_of_a_member(value: Literal[Colour.RED]) -> Literal[Colour.RED]:
    return value


@case({"type": "string", "enum": ["red", "blue"]}, "blue", Colour.BLUE)
def member(value: Colour) -> Colour:
    return value


@case({"type": "integer", "enum": [1, 2], "description": "1 = LOW, 2 = HIGH"}, 2, Level.HIGH)
def int_member(value: Level) -> Level:
    return value


@case({"type": "string", "enum": ["C", "F"], "description": "A unit of temperature."}, "C", Unit.CELSIUS)
def str_member(value: Unit) -> Unit:
    return value


@case({"enum": [0.5, 1], "description": "0.5 = HALF, 1 = WHOLE"}, 0.5, Ratio.HALF)
def member_of_mixed_numbers(value: Ratio) -> Ratio:
    return value


@case({"type": "string", "description": "the city"}, "Paris", "Paris")
def described(value: Annotated[str, "the city"]) -> Annotated[str, "the city"]:
    return value


@case({"type": "string", "description": "where from"}, "Paris", "Paris")
def described_again(value: Annotated[Annotated[str, "the city"], "where from"]) -> str:
    return value


@case(
    {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2, "description": "a few"},
    4,
    4,
)
def limited(value: Annotated[int, msgspec.Meta(ge=1, lt=9, multiple_of=2, description="a few")]) -> int:
    return value


@case({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a", "examples": ["ab"]}, "abc", "abc")
def limited_text(
    value: Annotated[str, msgspec.Meta(min_length=2, max_length=3, pattern="^a", examples=["ab"])],
) -> str:
    return value


@case({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [1], [1])
def limited_list(value: Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)]) -> list[int]:
    return value


@case({"anyOf": [{"type": "integer"}, {"type": "null"}], "exclusiveMinimum": 0, "maximum": 3}, 2, 2)
def limited_optional(value: Annotated[int | None, msgspec.Meta(gt=0, le=3)]) -> int | None:
    return value


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "description": "To the right."},
        "y": {"type": "integer", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["x"],
    "additionalProperties": False,
    "description": "A place on a map.",
}


@case(POINT, {"x": 1, "tags": ["a"]}, Point(1, 0, ["a"]), {"x": 1, "y": 0, "tags": ["a"]})
def record(value: Point) -> Point:
    return value


@case(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "what it is called"},
            "path": {"type": "string", "default": "here"},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    {"name": "a", "path": "/tmp"},
    Frozen("a", pathlib.Path("/tmp")),
)
def frozen_record(value: Frozen) -> Frozen:
    return value


@case(
    {
        "type": "object",
        "properties": {
            "percent": {"type": "integer"},
            "limit": {"type": "integer", "default": 5},
        },
        "required": ["percent"],
        "additionalProperties": False,
    },
    {"percent": 50},
    Strict(50),
    {"percent": 50, "double": 100, "limit": 5},
)
def record_with_fields_of_its_own(value: Strict) -> Strict:
    return value


@case(
    {
        "type": "object",
        "properties": {"title": {"type": "string"}, "year": {"type": "string", "format": "date"}},
        "required": ["title"],
        "additionalProperties": False,
    },
    {"title": "M", "year": "1931-05-11"},
    {"title": "M", "year": datetime.date(1931, 5, 11)},
)
def typed_dict(value: Film) -> Film:
    return value


@case(
    {
        "type": "object",
        "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
        "required": ["title"],
        "additionalProperties": False,
    },
    {"title": "M"},
    {"title": "M"},
)
def partial_typed_dict(value: Partial) -> Partial:
    return value


@case(
    {
        "type": "object",
        "properties": {"latitude": {"type": "number"}, "longitude": {"type": "number", "default": 0.0}},
        "required": ["latitude"],
        "additionalProperties": False,
        "description": "Where it is.",
    },
    {"latitude": 48.5},
    Place(48.5),
    {"latitude": 48.5, "longitude": 0.0},
)
def named_tuple(value: Place) -> Place:
    return value


@case(
    {
        "type": "object",
        "properties": {"left": {}, "right": {}},
        "required": ["left", "right"],
        "additionalProperties": False,
    },
    {"left": 1, "right": "b"},
    Bare(1, "b"),
)
def bare_named_tuple(value: Bare) -> Bare:
    return value


@case(
    {
        "type": "object",
        "properties": {
            "weightGrams": {"type": "integer", "description": "How heavy it is."},
            "sentOn": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        },
        "required": ["weightGrams"],
        "additionalProperties": False,
        "description": "What is sent.",
    },
    {"weightGrams": 5, "sentOn": "2024-01-01"},
    Parcel(5, datetime.date(2024, 1, 1)),
)
def struct(value: Parcel) -> Parcel:
    return value


@case(
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"type": {"type": "string", "enum": ["cat"]}, "lives": {"type": "integer"}},
                "required": ["type", "lives"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["dog"]},
                    "tricks": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["type"],
                "additionalProperties": False,
            },
        ]
    },
    {"type": "dog", "tricks": ["sit"]},
    Dog(["sit"]),
)
def tagged_structs(value: Cat | Dog) -> Cat | Dog:
    return value


@case(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
    {"name": "a"},
    Sparse("a"),
)
def struct_with_an_absent_field(value: Sparse) -> Sparse:
    return value


@case(
    {"type": "string", "format": "date-time"},
    "2024-01-02T03:04:05Z",
    datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
)
def moment(value: datetime.datetime) -> datetime.datetime:
    return value


@case({"type": "string", "format": "date"}, "2024-02-29", datetime.date(2024, 2, 29))
def day(value: datetime.date) -> datetime.date:
    return value


@case({"type": "string", "format": "time"}, "12:30:00", datetime.time(12, 30))
def time_of_day(value: datetime.time) -> datetime.time:
    return value


@case({"type": "string", "format": "duration"}, "P1DT3600S", datetime.timedelta(days=1, hours=1))
def duration(value: datetime.timedelta) -> datetime.timedelta:
    return value


@case(
    {"type": "string", "format": "uuid"},
    "12345678-1234-5678-1234-567812345678",
    uuid.UUID("12345678123456781234567812345678"),
)
def identity(value: uuid.UUID) -> uuid.UUID:
    return value


@case({"type": "string", "format": "decimal"}, "12.50", decimal.Decimal("12.50"))
def money(value: decimal.Decimal) -> decimal.Decimal:
    return value


@case({"type": "string", "contentEncoding": "base64"}, "aGk=", b"hi")
def binary(value: bytes) -> bytes:
    return value


@case({"type": "string", "contentEncoding": "base64"}, "aGk=", bytearray(b"hi"))
def changeable_binary(value: bytearray) -> bytearray:
    return value


@case({"type": "string"}, "a/b", pathlib.Path("a/b"))
def path(value: pathlib.Path) -> pathlib.Path:
    return value


@case({"type": "string"}, "a/b", pathlib.PurePosixPath("a/b"))
def pure_path(value: pathlib.PurePosixPath) -> pathlib.PurePosixPath:
    return value


@case({"type": "array", "items": {"type": "integer"}}, [1, 2], [1, 2])
def integers(value: list[int]) -> list[int]:
    return value


@case({"type": "array", "items": {}}, [1, "a"], [1, "a"])
def bare_list(value: list) -> list:
    return value


@case({"type": "array", "items": {"type": "string", "format": "date"}}, ["2024-01-01"], [datetime.date(2024, 1, 1)])
def old_list(value: typing.List[datetime.date]) -> typing.List[datetime.date]:
    return value


@case({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1}, {"a": 1.0}, {"a": 1.0})
def mapping_of_numbers(value: dict[str, float]) -> dict[str, float]:
    return value


@case({"type": "object", "additionalProperties": True}, {"a": [1]}, {"a": [1]})
def bare_dict(value: dict) -> dict:
    return value


@case(
    {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"}, "additionalProperties": {"type": "string"}},
    {"1": "a"},
    {1: "a"},
)
def dict_by_number(value: dict[int, str]) -> dict[int, str]:
    return value


@case(
    {
        "type": "object",
        "propertyNames": {"type": "string", "enum": ["red", "blue"]},
        "additionalProperties": {"type": "integer"},
    },
    {"red": 1},
    {Colour.RED: 1},
)
def dict_by_member(value: dict[Colour, int]) -> dict[Colour, int]:
    return value


@case(
    {
        "type": "object",
        "propertyNames": {"type": "string", "format": "date"},
        "additionalProperties": {"type": "integer"},
    },
    {"2024-01-01": 1},
    {datetime.date(2024, 1, 1): 1},
)
def dict_by_date(value: dict[datetime.date, int]) -> dict[datetime.date, int]:
    return value


@case({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a", "b"], {"a", "b"})
def texts_once(value: set[str]) -> set[str]:
    return value


@case({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 2], frozenset({1, 2}))
def frozen_set(value: frozenset[int]) -> frozenset[int]:
    return value


@case(
    {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}, "uniqueItems": True}, ["red"], {Colour.RED}
)
def set_of_members(value: set[Colour]) -> set[Colour]:
    return value


@case({"type": "array", "items": {}, "uniqueItems": True}, [1, 2], {1, 2})
def bare_set(value: set) -> set:
    return value


@case({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 2], {1, 2})
def abstract_set(value: abc.Set[int]) -> abc.Set[int]:
    return value


@case(
    {
        "type": "array",
        "items": False,
        "minItems": 2,
        "maxItems": 2,
        "prefixItems": [{"type": "integer"}, {"type": "string", "format": "date"}],
    },
    [1, "2024-01-01"],
    (1, datetime.date(2024, 1, 1)),
)
def pair(value: tuple[int, datetime.date]) -> tuple[int, datetime.date]:
    return value


@case({"type": "array", "items": {"type": "integer"}}, [1, 2, 3], (1, 2, 3))
def many(value: tuple[int, ...]) -> tuple[int, ...]:
    return value


@case({"type": "array", "items": {}}, [1, "a"], (1, "a"))
def bare_tuple(value: tuple) -> tuple:
    return value


@case({"type": "array", "items": False, "minItems": 0, "maxItems": 0}, [], ())
def empty_tuple(value: tuple[()]) -> tuple[()]:
    return value


@case({"type": "array", "items": {"type": "string", "format": "date"}}, ["2024-01-01"], [datetime.date(2024, 1, 1)])
def sequence(value: abc.Sequence[datetime.date]) -> abc.Sequence[datetime.date]:
    return value


@case({"type": "array", "items": {"type": "integer"}}, [1], [1])
def iterable(value: typing.Iterable[int]) -> typing.Iterable[int]:
    return value


@case(
    {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
    {"a": "2024-01-01"},
    {"a": datetime.date(2024, 1, 1)},
)
def mapping(value: abc.Mapping[str, datetime.date]) -> abc.Mapping[str, datetime.date]:
    return value


@case({"type": "array", "items": POINT}, [{"x": 1}], [Point(1)], [{"x": 1, "y": 0, "tags": []}])
def list_of_records(value: list[Point]) -> list[Point]:
    return value


@case({}, {"a": [1, None]}, {"a": [1, None]})
def anything(value: Any) -> Any:
    return value


@case({}, "x", "x")
def an_object(value: object) -> object:
    return value


@case({"type": "string", "format": "date"}, "2024-01-01", datetime.date(2024, 1, 1))
def bound_variable(value: Bounded) -> Bounded:
    return value


@case({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a")
def constrained_variable(value: Either) -> Either:
    return value


@case({}, [1], [1])
def free_variable(value: T) -> T:
    return value


@case({"type": "integer"}, 5, UserId(5))
def new_type(value: UserId) -> UserId:
    return value


@case({"type": "string", "format": "date"}, "2024-01-01", datetime.date(2024, 1, 1))
def forward_reference(value: "datetime.date") -> "datetime.date":
    return value


@case(
    {
        "type": "object",
        "properties": {
            "content": {"type": "string", "format": "date"},
            "many": {"type": "array", "items": {"type": "string", "format": "date"}},
        },
        "required": ["content", "many"],
        "additionalProperties": False,
    },
    {"content": "2024-01-01", "many": ["2024-01-02"]},
    Wrapped(datetime.date(2024, 1, 1), [datetime.date(2024, 1, 2)]),
)
def generic_record(value: Wrapped[datetime.date]) -> Wrapped[datetime.date]:
    return value


@case(
    {
        "type": "object",
        "properties": {
            "content": {"type": "integer"},
            "many": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["content", "many"],
        "additionalProperties": False,
    },
    {"content": 1, "many": [2]},
    Wrapped(1, [2]),
)
def generic_record_of_an_unhashable_hint(value: Wrapped[Annotated[int, types.SimpleNamespace()]]) -> Any:
    return value


@pytest.mark.requirement("S1-18")
@pytest.mark.parametrize(("function", "schema", "said", "value", "out"), CASES)
def test_a_type_hint_becomes_a_schema_and_its_values_are_converted(function, schema, said, value, out):
    signature = signature_of(function)
    assert signature.parameters["properties"]["value"] == schema
    assert jsonschema_rs.validator_for(signature.parameters).is_valid({"value": said})

    args, kwargs = signature.bind({"value": said})
    received = kwargs["value"]
    assert (received, type(received)) == (value, type(value))

    result = to_jsonable(function(*args, **kwargs))
    assert result == out
    assert msgspec.json.decode(msgspec.json.encode(result)) == result
    if signature.response is not None:
        assert jsonschema_rs.validator_for(signature.response).is_valid(result)


def test_a_recursive_type_refers_to_itself():
    def last(value: Node) -> Node:
        while value.next is not None:
            value = value.next
        return value

    signature = signature_of(last)
    node = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    assert signature.parameters["properties"] == {"value": {"$ref": "#/$defs/Node"}}
    assert signature.parameters["$defs"] == {"Node": node}
    _, kwargs = signature.bind({"value": {"value": 1, "next": {"value": 2}}})
    assert kwargs == {"value": Node(1, Node(2))}
    assert to_jsonable(last(**kwargs)) == {"value": 2, "next": None}


def test_a_type_used_twice_is_defined_once_and_keeps_the_descriptions_of_each_use():
    def move(start: Point, end: Point):
        """Move.

        Args:
            start: From here.
            end: To there.
        """

    assert signature_of(move).parameters == {
        "type": "object",
        "properties": {
            "start": {"$ref": "#/$defs/Point", "description": "From here."},
            "end": {"$ref": "#/$defs/Point", "description": "To there."},
        },
        "required": ["start", "end"],
        "additionalProperties": False,
        "$defs": {"Point": POINT},
    }


def test_types_with_the_same_name_get_separate_definitions():
    first = dataclasses.make_dataclass("Item", [("a", int)])
    second = dataclasses.make_dataclass("Item", [("b", int)])

    def compare(one: list[first], two: list[first], three: list[second], four: list[second]):
        pass

    signature = signature_of(compare)
    assert list(signature.parameters["$defs"]) == ["Item", "Item2"]
    _, kwargs = signature.bind({"one": [{"a": 1}], "two": [], "three": [{"b": 2}], "four": []})
    assert kwargs == {"one": [first(1)], "two": [], "three": [second(2)], "four": []}


def test_a_class_may_have_fields_named_ref_and_default():
    Odd = TypedDict("Odd", {"$ref": str, "default": Point, "title": Point, "a-b": NotRequired[int]})

    def take(odd: Odd):
        pass

    signature = signature_of(take)
    assert list(signature.parameters["properties"]["odd"]["properties"]) == ["$ref", "default", "title", "a-b"]
    given = {"$ref": "#/$defs/Point", "default": {"x": 1}, "title": {"x": 2}, "a-b": 3}
    assert jsonschema_rs.validator_for(signature.parameters).is_valid({"odd": given})
    _, kwargs = signature.bind({"odd": given})
    assert kwargs["odd"] == {"$ref": "#/$defs/Point", "default": Point(1), "title": Point(2), "a-b": 3}


if sys.version_info >= (3, 12):  # the type statement came with it

    def test_type_aliases_may_be_recursive():
        space: dict[str, Any] = {}
        exec(
            "type Days = list[__import__('datetime').date]\n"
            "type Json = dict[str, Json] | list[Json] | str | None\n"
            "type Few[T] = list[T]\n"
            "def take(days: Days, json: Json, few: Few[int]): pass\n",
            space,
        )
        signature = signature_of(space["take"])
        properties = signature.parameters["properties"]
        assert properties["days"] == {"type": "array", "items": {"type": "string", "format": "date"}}
        assert properties["json"] == {"$ref": "#/$defs/Json"}
        assert properties["few"] == {"type": "array", "items": {"type": "integer"}}
        _, kwargs = signature.bind({"days": ["2024-01-01"], "json": {"a": [None, "b"]}, "few": [1]})
        assert kwargs == {"days": [datetime.date(2024, 1, 1)], "json": {"a": [None, "b"]}, "few": [1]}


class Opaque:
    pass


class Strange(enum.Enum):
    PAIR = (1, 2)


class Empty(enum.Enum):
    pass


@dataclass
class Holder:
    inner: Opaque


class Thawed(msgspec.Struct):
    x: int


class Closed(TypedDict):
    x: int


@dataclass(frozen=True)
class Firm:
    x: int
    name: str = ""


class FirmStruct(msgspec.Struct, frozen=True):
    x: int


@pytest.mark.parametrize("kind", [Firm, FirmStruct])
def test_a_set_may_hold_frozen_records(kind):
    def take(values: set[kind], pairs: frozenset[tuple[kind, int] | None]): ...

    _, given = signature_of(take).bind({"values": [{"x": 1}, {"x": 1}], "pairs": [[{"x": 2}, 3], None]})
    assert given == {"values": {kind(1)}, "pairs": frozenset({(kind(2), 3), None})}


@pytest.mark.parametrize(
    ("hint", "given"),
    [
        (set[Any], [[1]]),
        (set[abc.Mapping[str, int] | None], [{"a": 1}]),
        (set[Thawed], [{"x": 1}]),
        (set[tuple[int, list[int]]], [[1, [2]]]),
        (frozenset[typing.Union[int, Closed]], [{"x": 1}]),
    ],
)
def test_an_item_that_cannot_be_in_a_set_is_a_problem_of_the_argument(hint, given):
    def take(values: hint): ...

    assert signature_of(take).bind({"values": []})[1] == {"values": typing.get_origin(hint)()}
    with pytest.raises(ArgumentError, match="values: unhashable"):
        signature_of(take).bind({"values": given})


def test_types_that_refer_to_each_other_are_defined_once():
    @dataclass
    class First:
        next: "Second | None"

    @dataclass
    class Second:
        next: First | None

    First.__annotations__["next"] = Second | None

    def take(value: First) -> None: ...

    parameters = signature_of(take).parameters
    second = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/First"}, {"type": "null"}]}}}
    closed = {"required": ["next"], "additionalProperties": False}
    first = {"type": "object", "properties": {"next": {"anyOf": [{**second, **closed}, {"type": "null"}]}}, **closed}
    assert parameters["$defs"] == {"First": first}


def test_data_that_looks_like_a_schema_is_not_changed():
    data = {"$ref": "#/$defs/Nowhere", "title": "T"}
    schema = {
        "title": "Gone",
        "properties": {"title": {"title": "Gone", "type": "string"}, "default": {"default": data}},
        "enum": [data],
        "anyOf": [True, {"title": "Gone"}],
    }
    expected = {
        "properties": {"title": {"type": "string"}, "default": {"default": data}},
        "enum": [data],
        "anyOf": [True, {}],
    }
    assert without_titles(schema) == expected
    assert SchemaBuilder("in").resolve(expected) == expected


REFUSED = [
    *(
        (hint, "use plain types, lists, a dataclass or a TypedDict")
        for hint in (
            abc.Callable[[int], str],
            types.ModuleType,
            Opaque,
            type[int],
            abc.Generator[int, None, None],
            abc.Iterator[int],
            abc.AsyncIterator[int],
            abc.Awaitable[int],
            abc.Coroutine[Any, Any, list[str]],
            asyncio.Future[int],
            abc.Awaitable,
            io.BytesIO,
            IO[str],
            complex,
            fractions.Fraction,
            re.Pattern[str],
            OrderedDict[str, int],
            [int],
            5,
            typing.Never,
        )
    ),
    (Holder, "field 'inner' of Holder"),
    (list[Opaque], "Opaque"),
    (Opaque | None, "Opaque"),
    (dict[tuple[int, int], str], "keys of a JSON object are text"),
    (Strange, "text or numbers"),
    (Literal[b"a"], "text or numbers"),
    (Empty, "no value to choose from"),
    (Annotated[decimal.Decimal, msgspec.Meta(ge=0)], "cannot limit values of this type"),
    (Annotated[bytes, msgspec.Meta(min_length=1)], "cannot limit values of this type"),
    (Annotated[datetime.date, types.SimpleNamespace(ge=datetime.date(2024, 1, 1))], "cannot limit values of this type"),
]


@pytest.mark.parametrize(("hint", "words"), REFUSED, ids=lambda value: str(value))
def test_a_parameter_that_cannot_be_expressed_is_an_error_with_its_name(hint, words):
    def send(city: str, thing: hint):
        pass

    with pytest.raises(SchemaError, match=r"parameter 'thing' of send: ") as caught:
        signature_of(send)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "response"),
    [
        (Opaque, None),
        (abc.Callable[[], int], None),
        (list[Opaque], None),
        ("pandas.DataFrame", None),
        ("", None),
        (abc.Iterator[int], {"type": "array", "items": {"type": "integer"}}),
        (abc.Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (abc.Generator[str, None, None], {"type": "array", "items": {"type": "string"}}),
        (abc.AsyncIterator[str], {"type": "array", "items": {"type": "string"}}),
        (typing.Iterator, {"type": "array", "items": {}}),
        (Any, None),
    ],
    ids=str,
)
def test_a_return_hint_that_cannot_be_expressed_gives_no_response_schema(hint, response):
    def make():
        pass

    make.__annotations__["return"] = hint
    assert signature_of(make).response == response


LIMITS = [
    (Annotated[int, msgspec.Meta(ge=1)], 0, "expected at least 1, got 0"),
    (Annotated[int | None, msgspec.Meta(multiple_of=2)], 3, "expected a multiple of 2, got 3"),
    (Annotated[int, types.SimpleNamespace(ge=1)], 0, "expected at least 1, got 0"),
    (Annotated[str, re.compile("^a")], "b", 'expected text that matches the pattern "^a", got "b"'),
    (Annotated[str, msgspec.Meta(pattern="^a")], "b", 'expected text that matches the pattern "^a", got "b"'),
    (Annotated[set[int] | None, msgspec.Meta(max_length=1)], [1, 2], "expected at most 1 item,"),
    (Annotated[pathlib.Path | None, msgspec.Meta(min_length=1)], "", "at least 1 character,"),
]


@pytest.mark.parametrize(("hint", "value", "words"), LIMITS, ids=str)
def test_limits_of_annotated_are_enforced_by_the_schema(hint, value, words):
    def take(thing: hint):
        pass

    (problem,) = SchemaValidator(signature_of(take).parameters).problems({"thing": value})
    assert problem.path == "thing"
    assert words in problem.message


def test_an_item_that_is_not_hashable_is_a_problem_of_a_set():
    def take(thing: set):
        pass

    with pytest.raises(ArgumentError, match="thing: unhashable"):
        signature_of(take).bind({"thing": [[1]]})


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-Infinity", "1E+6145", "1E-6145", "nan", "x"])
def test_a_decimal_is_finite_and_has_a_reasonable_exponent(text):
    with pytest.raises(ArgumentError, match="value: expected a"):
        signature_of(money).bind({"value": text})
    assert signature_of(money).bind({"value": "-1E+6144"})[1]["value"] == decimal.Decimal("-1E+6144")


@hypothesis_given(
    strategies.recursive(
        strategies.none()
        | strategies.booleans()
        | strategies.integers()
        | strategies.floats(allow_nan=False, allow_infinity=False)
        | strategies.text(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
        max_leaves=20,
    )
)
def test_any_json_value_goes_through_an_untyped_parameter_and_back_unchanged(value):
    signature = signature_of(anything)
    _, kwargs = signature.bind({"value": value})
    assert to_jsonable(anything(**kwargs)) == value


@hypothesis_given(
    strategies.builds(Point, strategies.integers(), strategies.integers(), strategies.lists(strategies.text()))
)
def test_values_survive_conversion_to_json_and_back(point):
    signature = signature_of(record)
    _, kwargs = signature.bind({"value": to_jsonable(point)})
    assert kwargs == {"value": point}


@hypothesis_given(
    strategies.tuples(
        strategies.dates(),
        strategies.uuids(),
        strategies.decimals(allow_nan=False, allow_infinity=False),
        strategies.binary(),
        strategies.timedeltas(datetime.timedelta(days=-9999), datetime.timedelta(days=9999)),
    )
)
def test_scalar_values_survive_conversion_to_json_and_back(values):
    def take(a: datetime.date, b: uuid.UUID, c: decimal.Decimal, d: bytes, e: datetime.timedelta):
        pass

    signature = signature_of(take)
    _, kwargs = signature.bind(to_jsonable(dict(zip("abcde", values, strict=True))))
    assert tuple(kwargs.values()) == values


def test_booleans_and_numbers_of_a_literal_are_kept_apart() -> None:
    def choose(value: Literal[1, 2, "x"], flag: Literal[True, 0]) -> None: ...

    signature = signature_of(choose)
    with pytest.raises(ArgumentError, match="value: expected one of 1, 2"):
        signature.bind({"value": True, "flag": True})
    with pytest.raises(ArgumentError, match="flag: expected one of true, 0"):
        signature.bind({"value": 1, "flag": False})


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (tuple[int, str], [1], "expected array of 2 items, got [1]"),
        (tuple[int, str], {"a": 1, "b": 2}, "expected array of 2 items"),
        (list[int], {"a": 1}, "expected array"),
        (dict[str, int], [1], "expected object"),
        (dict[int, int], {"x": 1}, "x: invalid literal"),
        (dict[int, int], {"1": 1, "01": 2}, "thing: two of its names, such as 1 and 01, mean the same key"),
        (Literal["a", 2], [], 'expected one of "a", 2'),
        (int | bool, "x", 'fits none of the alternatives: expected integer, got "x"; expected boolean'),
        (int | None, "x", 'expected integer, got "x"'),
    ],
)
def test_a_binding_rejects_values_that_were_not_validated(hint, value, words):
    def take(thing: hint): ...

    with pytest.raises(ArgumentError) as caught:
        signature_of(take).bind({"thing": value})
    assert words in str(caught.value)


@dataclass
class Options:
    size: int = 1


class Folder(os.PathLike[str]):
    def __fspath__(self) -> str:
        return "folder"


T_co = TypeVar("T_co", covariant=True)


@dataclass
class Box(Generic[T_co]):
    content: T_co


def test_a_record_in_a_union_rejects_what_is_not_an_object():
    def take(thing: Options | list[int]): ...

    assert signature_of(take).bind({"thing": [1]})[1] == {"thing": [1]}
    assert signature_of(take).bind({"thing": {}})[1] == {"thing": Options()}


def test_keys_may_be_members_of_an_enum_of_numbers():
    def take(names: dict[Level, str]): ...

    signature = signature_of(take)
    assert signature.parameters["properties"]["names"]["propertyNames"] == {"enum": ["1", "2"]}
    assert signature.bind({"names": {"1": "a"}})[1] == {"names": {Level.LOW: "a"}}


def test_a_path_of_another_kind_is_an_error():
    def take(folder: Folder): ...

    with pytest.raises(SchemaError, match="Folder is not JSON serializable"):
        signature_of(take)


def test_a_generic_record_without_arguments_has_fields_of_any_type():
    def take(box: Box): ...

    assert signature_of(take).parameters["properties"]["box"]["properties"] == {"content": {}}
    assert signature_of(take).bind({"box": {"content": "x"}})[1] == {"box": Box("x")}


def test_records_of_the_same_name_are_numbered():
    first, second, third = (dataclasses.make_dataclass("Point", [(name, int)]) for name in "xyz")

    def take(a: list[first], b: list[second], c: list[third], d: first, e: second, f: third): ...

    definitions = signature_of(take).parameters["$defs"]
    assert {name: list(schema["properties"]) for name, schema in definitions.items()} == {
        "Point": ["x"],
        "Point2": ["y"],
        "Point3": ["z"],
    }
