"""Callables of every kind as tools: their schemas, their arguments, their results."""

# ruff: noqa: B006, UP045 - these defaults and spellings are what users write

import asyncio
import datetime
import enum
import functools
import inspect
import json
import math
import pathlib
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Unpack

import jsonschema_rs
import msgspec
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st

from midspan._schema.arguments import SchemaValidator
from midspan._schema.jsonable import to_jsonable
from midspan._schema.output_type import OutputType
from midspan._schema.signature import Context, signature_of
from midspan._types.context import RunContext
from midspan.errors import ArgumentError, ResultError, SchemaError
from tests.schema import annotated_as_text

NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def get_weather(city: str, days: int = 3) -> dict[str, float]:
    """Look up the weather.

    It is taken from the nearest station.

    Args:
        city: The city, such as Paris.
        days: How many days.
    """
    return {city: float(days)}


class Office:
    """A place to work."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor

    def __call__(self, name: str) -> str:
        """Call somebody.

        :param name: Who it is.
        """
        return f"{name} on {self.floor}"

    def find(self, name: str) -> int:
        """Find a desk."""
        return self.floor

    @classmethod
    def open(cls, floor: int) -> int:
        """Open a floor."""
        return floor

    @staticmethod
    def close(floor: int) -> int:
        """Close a floor."""
        return floor

    async def clean(self, room: int) -> int:
        return room


class Quiet:
    """Says nothing."""

    def __call__(self, word: str) -> None: ...


@dataclass
class Deps:
    user: str


@pytest.mark.requirement("S0-14", "S0-04")
def test_a_function_becomes_a_described_schema():
    signature = signature_of(get_weather)
    assert signature.name == "get_weather"
    assert signature.description == "Look up the weather.\n\nIt is taken from the nearest station."
    assert signature.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city, such as Paris."},
            "days": {"type": "integer", "default": 3, "description": "How many days."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert signature.response == {"type": "object", "additionalProperties": {"type": "number"}}
    assert jsonschema_rs.meta.is_valid(signature.parameters)


def test_a_name_and_a_description_can_be_given():
    signature = signature_of(get_weather, name="weather", description="Tells it.")
    assert (signature.name, signature.description) == ("weather", "Tells it.")


@pytest.mark.requirement("S0-04")
def test_without_a_docstring_the_description_is_the_name():
    def close_all_doors(): ...

    assert signature_of(close_all_doors).description == "Close all doors"


def test_a_function_without_parameters_has_an_empty_object():
    def now() -> str:
        return "now"

    signature = signature_of(now)
    assert signature.parameters == NO_PARAMETERS
    assert signature.bind({}) == ((), {})
    with pytest.raises(ArgumentError, match="expected object with no properties"):
        signature.bind({"zone": "UTC"})


def call(function: Any, arguments: dict[str, Any], context: Any = None) -> Any:
    signature = signature_of(function)
    args, kwargs = signature.bind(arguments, RunContext(context))
    value = function(*args, **kwargs)
    return to_jsonable(asyncio.run(value) if inspect.isawaitable(value) else value)


def test_the_response_of_an_async_function_is_what_it_returns():
    async def fetch(url: str) -> bytes:
        return url.encode()

    signature = signature_of(fetch)
    assert signature.response == {"type": "string", "contentEncoding": "base64"}
    assert call(fetch, {"url": "hi"}) == "aGk="


def test_methods_of_all_kinds_have_no_self():
    office = Office(4)
    assert list(signature_of(office.find).parameters["properties"]) == ["name"]
    assert call(office.find, {"name": "Ann"}) == 4
    assert call(Office.open, {"floor": 2}) == 2
    assert call(Office.close, {"floor": 3}) == 3
    assert call(office.close, {"floor": 3}) == 3
    assert call(office.clean, {"room": 5}) == 5
    assert signature_of(Office.open).description == "Open a floor."


def test_a_method_without_its_object_is_an_error():
    with pytest.raises(SchemaError, match="find is an unbound method"):
        signature_of(Office.find)


def test_a_callable_object_is_called_by_its_class():
    signature = signature_of(Office(2))
    assert (signature.name, signature.description) == ("Office", "Call somebody.")
    assert signature.parameters["properties"] == {"name": {"type": "string", "description": "Who it is."}}
    assert call(Office(2), {"name": "Ann"}) == "Ann on 2"
    assert signature_of(Quiet()).description == "Says nothing."


def test_an_async_callable_object_is_called():
    class Fetch:
        async def __call__(self, url: str) -> str:
            return url

    assert call(Fetch(), {"url": "a"}) == "a"


def test_a_class_is_a_tool_that_makes_it():
    @dataclass
    class Booking:
        """Book a room.

        Args:
            day: When.
        """

        day: datetime.date
        nights: int = 1

    signature = signature_of(Booking)
    assert (signature.name, signature.description) == ("Booking", "Book a room.")
    assert signature.parameters["properties"]["day"] == {"type": "string", "format": "date", "description": "When."}
    assert call(Booking, {"day": "2024-01-01"}) == {"day": "2024-01-01", "nights": 1}


def test_a_partial_does_not_declare_bound_arguments():
    def send(to: str, subject: str, body: str = "", urgent: bool = False) -> list[Any]:
        """Send a letter."""
        return [to, subject, body, urgent]

    by_position = functools.partial(send, "Ann")
    assert list(signature_of(by_position).parameters["properties"]) == ["subject", "body", "urgent"]
    assert call(by_position, {"subject": "Hi"}) == ["Ann", "Hi", "", False]

    by_keyword = functools.partial(by_position, urgent=True)
    signature = signature_of(by_keyword)
    assert (signature.name, signature.description) == ("send", "Send a letter.")
    assert list(signature.parameters["properties"]) == ["subject", "body"]
    assert call(by_keyword, {"subject": "Hi", "body": "x"}) == ["Ann", "Hi", "x", True]
    with pytest.raises(ArgumentError, match="urgent"):
        signature.bind({"subject": "Hi", "urgent": False})


def test_a_partial_of_a_method_and_of_an_async_function():
    async def add(first: int, second: int) -> int:
        return first + second

    assert call(functools.partial(add, 1), {"second": 2}) == 3
    assert call(functools.partial(Office(7).find), {"name": "x"}) == 7


def test_a_model_cannot_override_bound_arguments_of_a_partial():
    def log(event: str, **details: str) -> dict[str, str]:
        return details

    bound = functools.partial(log, user="me")
    assert call(bound, {"event": "e", "city": "Paris"}) == {"user": "me", "city": "Paris"}
    assert not SchemaValidator(signature_of(bound).parameters).accepts({"event": "e", "user": "you"})


def test_a_lambda_needs_a_name():
    with pytest.raises(SchemaError, match="name="):
        signature_of(lambda x: x)
    signature = signature_of(lambda x: x, name="echo")
    assert signature.name == "echo"
    assert signature.parameters["properties"] == {"x": {}}


def test_a_decorated_function_is_what_it_wraps():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    signature = signature_of(logged(get_weather))
    assert signature.parameters == signature_of(get_weather).parameters
    assert call(logged(annotated_as_text.book), {"day": "2024-01-01", "tree": {"value": 1}}) == {
        "value": 1,
        "children": [],
    }


def test_a_cached_function_is_what_it_wraps():
    cached = functools.cache(annotated_as_text.Desk().sign)
    assert signature_of(functools.cache(get_weather)).description == signature_of(get_weather).description
    assert call(cached, {"name": "a", "day": "2024-01-01"}) == "2024-01-01"


def test_a_blocking_wrapper_of_an_async_function_is_called():
    async def slow(x: int) -> int:
        return x

    @functools.wraps(slow)
    def blocking(*args, **kwargs):
        return asyncio.run(slow(*args, **kwargs))

    assert call(blocking, {"x": 1}) == 1


def test_a_class_that_inherits_its_constructor_is_a_tool_too():
    class Bigger(annotated_as_text.Tree):
        """A bigger tree."""

    signature = signature_of(Bigger)
    assert signature.description == "A bigger tree."
    _, kwargs = signature.bind({"value": 1, "children": [{"value": 2}]})
    assert Bigger(**kwargs).children == [annotated_as_text.Tree(2)]


def test_a_wrapper_may_state_a_signature_of_its_own():
    def wrapper(**kwargs):
        return kwargs

    wrapper.__signature__ = inspect.Signature(
        [inspect.Parameter("city", inspect.Parameter.KEYWORD_ONLY, annotation=str)]
    )
    assert list(signature_of(wrapper).parameters["properties"]) == ["city"]


def test_builtins_are_tools_where_python_knows_their_parameters():
    assert call(math.sqrt, {"x": 9}) == 3.0
    assert call(len, {"obj": [1, 2]}) == 2
    assert signature_of(json.dumps).parameters["required"] == ["obj"]


@pytest.mark.parametrize("function", [max, int, dict, type("Hidden", (), {"__signature__": "x"})])
def test_a_callable_without_a_signature_is_an_error(function):
    with pytest.raises(SchemaError, match=r"write a function|not JSON serializable|is not a tool"):
        signature_of(function)


def test_an_object_that_is_not_callable_is_an_error():
    with pytest.raises(SchemaError, match="5 is not a tool"):
        signature_of(5)


# Parameters of every kind


def test_positional_only_parameters_are_passed_by_position():
    def power(base: int, exponent: int = 2, /, *, round_to: int = 0) -> list[int]:
        return [base, exponent, round_to]

    assert signature_of(power).bind({"base": 3}) == ((3, 2), {})
    assert call(power, {"base": 3, "round_to": 1}) == [3, 2, 1]
    assert call(power, {"exponent": 5, "base": 3}) == [3, 5, 0]


def test_keyword_only_parameters_are_passed_by_keyword():
    def find(*, name: str, day: datetime.date = datetime.date(2024, 1, 1)) -> str:
        return f"{name} {day}"

    assert signature_of(find).parameters["properties"]["day"]["default"] == "2024-01-01"
    assert call(find, {"name": "a"}) == "a 2024-01-01"


def test_variadic_arguments_are_an_optional_array():
    def total(start: int, step: int = 1, *numbers: float, scale: int = 1) -> list[float]:
        """Add up.

        Args:
            *numbers: What to add.
        """
        return [start, step, *numbers, scale]

    signature = signature_of(total)
    assert signature.parameters["properties"]["numbers"] == {
        "type": "array",
        "items": {"type": "number"},
        "description": "What to add.",
    }
    assert signature.parameters["required"] == ["start"]
    assert call(total, {"start": 1}) == [1, 1, 1]
    assert call(total, {"start": 1, "numbers": [2, 3.5], "scale": 4}) == [1, 1, 2.0, 3.5, 4]
    assert call(total, {"start": 1, "step": 7, "numbers": []}) == [1, 7, 1]


def test_further_keywords_are_additional_properties_of_their_hint():
    def label(name: str, **dates: datetime.date) -> dict[str, datetime.date]:
        return dates

    signature = signature_of(label)
    assert signature.parameters["additionalProperties"] == {"type": "string", "format": "date"}
    assert call(label, {"name": "x", "due": "2024-01-01"}) == {"due": "2024-01-01"}
    with pytest.raises(ArgumentError) as caught:
        signature.bind({"name": "x", "due": "2024-02-31"})
    assert caught.value.path == "due"

    def anything(**rest): ...

    assert signature_of(anything).parameters == {**NO_PARAMETERS, "additionalProperties": True}
    assert signature_of(anything).bind({"a": 1}) == ((), {"a": 1})


def test_unpacked_keywords_are_parameters():
    class Options(TypedDict):
        day: datetime.date
        note: NotRequired[str]

    def book(room: int, **options: Unpack[Options]) -> Any:
        return options

    signature = signature_of(book)
    assert signature.parameters["properties"] == {
        "room": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "note": {"type": "string"},
    }
    assert signature.parameters["required"] == ["room", "day"]
    assert signature.parameters["additionalProperties"] is False
    assert call(book, {"room": 1, "day": "2024-01-01"}) == {"day": "2024-01-01"}


class Options(typing_extensions.TypedDict):
    day: datetime.date
    note: typing_extensions.NotRequired[str]


def test_unpack_of_typing_extensions_is_unpack():
    def book(room: int, **options: typing_extensions.Unpack[Options]) -> Any:
        return options

    signature = signature_of(book)
    assert list(signature.parameters["properties"]) == ["room", "day", "note"]
    assert signature.parameters["required"] == ["room", "day"]
    assert call(book, {"room": 1, "day": "2024-01-01"}) == {"day": "2024-01-01"}


@pytest.mark.parametrize(
    "hint", [Unpack[tuple[int, str]], typing_extensions.Unpack[tuple[int, ...]], (*tuple[int, ...],)[0]]
)
def test_positional_arguments_cannot_be_unpacked(hint):
    def take(*values): ...

    take.__annotations__["values"] = hint
    with pytest.raises(SchemaError, match=r"'values': only a TypedDict can be unpacked, after \*\*"):
        signature_of(take)


def test_only_a_typed_dict_can_be_unpacked_into_keywords():
    def take(**values: Unpack[tuple[int, str]]) -> None: ...

    with pytest.raises(SchemaError, match=r"'values': only a TypedDict can be unpacked, after \*\*"):
        signature_of(take)


def test_a_description_of_further_keywords_is_kept():
    def update(**fields: Any) -> None:
        """Change the record.

        Args:
            **fields: New values by name.
        """

    assert signature_of(update).parameters["additionalProperties"] == {"description": "New values by name."}


def test_the_docstring_of_a_callable_object_may_be_on_the_class_or_its_method():
    class Base:
        """From the base class."""

        def __call__(self, word: str) -> None: ...

    class Child(Base):
        pass

    labelled = Child()
    labelled.__doc__ = """From the object.

    Args:
        word: What to say.
    """
    assert signature_of(Child()).description == "From the base class."
    assert signature_of(functools.partial(Child())).description == "From the base class."
    assert signature_of(labelled).description == "From the object."
    assert signature_of(labelled).parameters["properties"]["word"]["description"] == "What to say."
    assert signature_of(Office(1)).description == "Call somebody."


@pytest.mark.parametrize("hint", ["", "1 +", "NotThere", "list[NotThere]", "x.y", "1/0", "[][0]", "{}['a']"])
def test_a_hint_that_cannot_be_evaluated_is_a_schema_error_with_its_place(hint):
    def take(value): ...

    take.__annotations__["value"] = hint
    with pytest.raises(SchemaError, match=r"cannot resolve the type hint of parameter 'value' of take: "):
        signature_of(take)

    def give(): ...

    give.__annotations__["return"] = hint
    assert signature_of(give).response is None


def test_an_object_with_a_broken_signature_is_a_schema_error():
    class Hostile:
        @property
        def __signature__(self):
            raise KeyError("x")

        def __call__(self): ...

    with pytest.raises(SchemaError, match="does not know the parameters"):
        signature_of(Hostile())


def test_unannotated_parameters_take_anything_or_the_type_of_their_default():
    def mix(anything, count=1, ratio=0.5, flag=False, word="a", items=[], nothing=None):
        return [anything, count]

    assert signature_of(mix).parameters["properties"] == {
        "anything": {},
        "count": {"type": "integer", "default": 1},
        "ratio": {"type": "number", "default": 0.5},
        "flag": {"type": "boolean", "default": False},
        "word": {"type": "string", "default": "a"},
        "items": {"type": "array", "items": {}, "default": []},
        "nothing": {"default": None},
    }
    assert signature_of(mix).response is None
    assert call(mix, {"anything": [1]}) == [[1], 1]


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.requirement("S0-14")
def test_only_defaults_that_survive_json_are_declared():
    missing = object()

    def draw(
        colour: Colour = Colour.RED,
        day: datetime.date = datetime.date(2024, 1, 1),
        tags: frozenset[str] = frozenset({"b", "a"}),
        infinite: float = math.inf,
        wrong: int = "auto",  # type: ignore[assignment]
        secret: Any = missing,
        other: Any = pathlib.Path("x"),
        factory: Any = list,
    ) -> Any:
        return [colour, day, tags, secret is missing, isinstance(other, pathlib.Path)]

    properties = signature_of(draw).parameters["properties"]
    assert {name: schema["default"] for name, schema in properties.items() if "default" in schema} == {
        "colour": "red",
        "day": "2024-01-01",
        "tags": ["a", "b"],
    }
    assert "required" not in signature_of(draw).parameters
    assert call(draw, {}) == ["red", "2024-01-01", ["a", "b"], True, True]
    assert call(draw, {"colour": "red", "day": "2024-01-02"})[1] == "2024-01-02"


def test_a_default_of_none_allows_none_even_if_the_hint_forgets_it():
    def find(name: str = None, limit: Annotated[int, msgspec.Meta(ge=1, description="at most")] = None):  # type: ignore[assignment]  # noqa: RUF013
        return [name, limit]

    assert signature_of(find).parameters["properties"] == {
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "limit": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "minimum": 1,
            "description": "at most",
            "default": None,
        },
    }
    assert call(find, {"name": None, "limit": None}) == [None, None]
    assert not SchemaValidator(signature_of(find).parameters).accepts({"limit": 0})


def test_a_description_at_the_hint_wins_over_the_docstring():
    def find(name: Annotated[str, "the family name"]):
        """Find somebody.

        Args:
            name: The name.
        """

    assert signature_of(find).parameters["properties"]["name"]["description"] == "the family name"


# The context, which no model sees


def test_a_context_is_passed_and_never_shown():
    def greet(word: str, context: Context[Deps], times: int = 1) -> str:
        return f"{word} {context.user}" * times

    signature = signature_of(greet)
    assert list(signature.parameters["properties"]) == ["word", "times"]
    assert call(greet, {"word": "Hi"}, Deps("Ann")) == "Hi Ann"
    with pytest.raises(ArgumentError, match="expected object with word, times"):
        signature.bind({"word": "Hi", "context": {"user": "Eve"}})


def test_a_context_may_be_optional_bare_or_positional():
    def one(deps: Context[Deps] | None = None) -> str:
        return deps.user if deps else "nobody"

    def two(deps: Optional[Context[Deps]], /, word: str) -> str:
        return f"{word} {deps.user}"

    def three(deps: Context, **rest: int) -> str:
        return f"{deps} {rest}"

    assert signature_of(one).parameters == NO_PARAMETERS
    assert call(one, {}) == "nobody"
    assert call(one, {}, Deps("Ann")) == "Ann"
    assert call(two, {"word": "Hi"}, Deps("Ann")) == "Hi Ann"
    assert call(three, {"a": 1}, "here") == "here {'a': 1}"
    assert not SchemaValidator(signature_of(three).parameters).accepts({"deps": 1})


def test_without_a_context_its_default_is_used():
    somebody = Deps("somebody")

    def greet(context: Context[Deps] = somebody) -> str:
        return context.user

    assert call(greet, {}) == "somebody"
    assert call(greet, {}, Deps("Ann")) == "Ann"


# Annotations that are text


def test_annotations_that_are_text_are_resolved_in_their_own_module():
    signature = signature_of(annotated_as_text.book)
    assert signature.parameters["properties"]["note"]["description"] == "for the guest"
    assert signature.parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    _, kwargs = signature.bind({"day": "2024-01-01", "tree": {"value": 1, "children": [{"value": 2}]}})
    assert kwargs["day"] == datetime.date(2024, 1, 1)
    assert kwargs["tree"] == annotated_as_text.Tree(1, [annotated_as_text.Tree(2)])


def test_time_zone_of_meta_is_accepted():
    day = OutputType(Annotated[datetime.datetime, msgspec.Meta(tz=True)])
    assert day.schema == {"type": "string", "format": "date-time"}


def test_records_whose_annotations_are_text_keep_what_is_required():
    properties = signature_of(annotated_as_text.with_options).parameters["properties"]
    assert properties["options"]["required"] == ["name"]
    assert properties["loose"]["required"] == ["name"]
    for cls in (annotated_as_text.Fixed, annotated_as_text.FixedOptions):
        assert OutputType(cls).schema["required"] == ["name"]
    _, kwargs = signature_of(annotated_as_text.with_options).bind(
        {"options": {"name": "a", "day": "2024-01-01"}, "loose": {"name": "b"}}
    )
    assert kwargs == {"options": {"name": "a", "day": datetime.date(2024, 1, 1)}, "loose": {"name": "b"}}
    assert call(
        annotated_as_text.with_pair,
        {"pair": {"first": "2024-01-01", "second": {"value": 1}}, "letter": {"to": "Ann"}},
    ) == {"first": "2024-01-01", "second": {"value": 1, "children": []}}


def test_a_context_and_a_method_with_annotations_that_are_text():
    assert call(annotated_as_text.with_context, {"city": "Paris"}, {"Paris": 5}) == 5
    assert call(annotated_as_text.Desk().sign, {"name": "a", "day": "2024-01-01"}) == "2024-01-01"


def test_undefined_names_in_annotations_are_an_error():
    with pytest.raises(
        SchemaError, match=r"cannot resolve the type hint of parameter 'thing' of of_unknown: name 'Unknown'.*at run"
    ):
        signature_of(annotated_as_text.of_unknown)
    assert signature_of(annotated_as_text.to_unknown).response is None
    assert signature_of(annotated_as_text.Desk().twin).response is None


# What comes back


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (None, {"type": "null"}),
        (Any, None),
        (object, None),
        (inspect.Signature.empty, None),
        (int, {"type": "integer"}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
    ],
    ids=str,
)
def test_the_return_annotation_is_the_response_schema(hint, schema):
    def give(): ...

    if hint is not inspect.Signature.empty:
        give.__annotations__["return"] = hint
    assert signature_of(give).response == schema


def test_functions_that_return_an_awaitable_respond_with_what_it_gives():
    import typing
    from collections.abc import Awaitable, Coroutine
    from typing import NoReturn

    def later() -> Awaitable[int]: ...
    def soon() -> Coroutine[Any, Any, str]: ...
    def never() -> NoReturn: ...
    def sometime() -> typing.Awaitable: ...
    def promised() -> asyncio.Future[int]: ...

    assert signature_of(sometime).response is None
    assert signature_of(promised).response == {"type": "integer"}
    assert signature_of(later).response == {"type": "integer"}
    assert signature_of(soon).response == {"type": "string"}
    assert signature_of(never).response is None


def test_a_response_names_all_fields_and_allows_those_of_subclasses():
    @dataclass
    class Report:
        title: str
        pages: int = 1

    def report() -> Report:
        return Report("a")

    assert signature_of(report).response == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}},
        "required": ["title", "pages"],
    }


def test_a_parameter_that_is_not_json_serializable_is_an_error_that_names_context():
    def use(stop: asyncio.Event): ...

    words = r"^parameter 'stop' of use: Event is not JSON serializable; .*; a parameter .* can be a Context\[…\]$"
    with pytest.raises(SchemaError, match=words):
        signature_of(use)


def test_a_return_value_that_is_not_json_serializable_is_a_result_error():
    with pytest.raises(ResultError, match=r"^an object is not JSON serializable"):
        to_jsonable(object())


# Values that are not of their type


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        ({"day": "2024-02-31"}, "day", "a date that exists, as YYYY-MM-DD"),
        ({"day": "2024-01-01", "stops": [{"at": "25:00"}]}, "stops[0].at", "HH:MM:SS"),
        ({"day": "2024-01-01", "stops": [{}]}, "stops[0]", "expected object with at, wait"),
        ({"day": "2024-01-01", "stops": [{"at": "10:00:00", "by": 1}]}, "stops[0]", "expected object with at, wait"),
        ({"day": "2024-01-01", "stops": [{"at": "10:00:00", "wait": "x"}]}, "stops[0].wait", "ISO 8601"),
        ({"day": "2024-01-01", "guests": {"Ann": "x"}}, "guests.Ann", 'expected integer, got "x"'),
        ({"day": "2024-01-01", "kind": "bus"}, "kind", 'expected one of "train", got "bus"'),
        ({"day": "2024-01-01", "seat": "x"}, "seat", "fits none of the alternatives"),
        ({"day": 5}, "day", "expected a date that exists"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_with_its_path(arguments, path, words):
    @dataclass
    class Stop:
        at: datetime.time
        wait: datetime.timedelta = datetime.timedelta(0)

    class Kind(enum.Enum):
        TRAIN = "train"

    def travel(
        day: datetime.date,
        stops: list[Stop] = [],
        guests: dict[str, int] = {},
        kind: Kind = Kind.TRAIN,
        seat: datetime.date | Kind = Kind.TRAIN,
    ): ...

    with pytest.raises(ArgumentError) as caught:
        signature_of(travel).bind(arguments)
    assert caught.value.path == path
    assert words in caught.value.problem
    assert str(caught.value) == f"{path}: {caught.value.problem}"


def test_all_values_of_wrong_types_are_reported_at_once():
    @dataclass
    class Stop:
        days: dict[str, datetime.date]

    def travel(
        day: datetime.date,
        stops: list[Stop],
        ids: Annotated[dict[str, uuid.UUID] | None, msgspec.Meta(max_length=3)] = None,
        *also: datetime.date,
        **further: datetime.date,
    ): ...

    given = {
        "day": "x",
        "stops": [{"days": {"3": "x", "a": "2024-01-01", "b c": "y"}}, {"days": {}}],
        "ids": {"one": "1"},
        "also": ["2024-01-01", "z"],
        "more": "w",
    }
    with pytest.raises(ArgumentError) as caught:
        signature_of(travel).bind(given)
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "day",
        'stops[0].days["3"]',
        'stops[0].days["b c"]',
        "ids.one",
        "also[1]",
        "more",
    ]


@pytest.mark.parametrize(
    ("hint", "given", "expected"),
    [
        (int | str, 5.0, 5),
        (Literal[1, "a"], 1.0, 1),
        (bool | int, 1.0, 1),
        (list[int] | int, 5.0, 5),
        (list[int] | int, [5.0], [5]),
        (dict[str, int] | list[str], {"a": 5.0}, {"a": 5}),
        (float, 5, 5.0),
        (float | None, 5, 5.0),
        (list[float], [5, 1.5], [5.0, 1.5]),
        (dict[str, float] | str, {"a": 5}, {"a": 5.0}),
        (dict[str, float], {"a": 5, "b": 1.5}, {"a": 5.0, "b": 1.5}),
        (dict[str, int], {"a": 5.0, "b": 1}, {"a": 5, "b": 1}),
    ],
)
def test_valid_arguments_arrive_as_values_of_their_hint(hint, given, expected):
    def take(value): ...

    take.__annotations__["value"] = hint
    signature = signature_of(take)
    prepared = SchemaValidator(signature.parameters).validate({"value": given})
    assert prepared.problems == ()
    arguments = prepared.arguments
    if not signature.bind.needs_no_conversion:
        _, arguments = signature.bind(arguments)
    assert repr(arguments) == repr({"value": expected})


UNHINTED = object()


@pytest.mark.parametrize(
    "hint",
    [
        Any,
        list,
        dict,
        list[Any],
        list[list[int]],
        dict[str, Any],
        list[dict[str, int]],
        list[str],
        dict[str, int],
        UNHINTED,
    ],
)
def test_a_function_gets_containers_of_its_own(hint):
    def take(value): ...

    def take_more(**values): ...

    if hint is not UNHINTED:
        take.__annotations__["value"] = hint
        take_more.__annotations__["values"] = hint
    given = {"value": {"k": {"l": [1]}} if hint in (dict, dict[str, Any]) else _list_of(hint)}
    for function in (take, take_more):
        _, keywords = signature_of(function).bind(given)
        assert keywords == given
        assert not _containers(keywords) & _containers(given)


def _list_of(hint):
    return {dict[str, int]: {"a": 1}, list[list[int]]: [[1]], list[dict[str, int]]: [{"a": 1}], list[str]: ["a"]}.get(
        hint, [[{"a": [1]}]]
    )


def _containers(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {id(value)}.union(*map(_containers, inner)) if isinstance(value, dict | list) else set()


def test_an_integer_default_of_a_float_is_a_float():
    def scale(factor: float = 1): ...

    assert repr(signature_of(scale).parameters["properties"]["factor"]["default"]) == "1.0"


def test_errors_of_constructors_are_reported():
    class Picky(msgspec.Struct):
        age: int

        def __post_init__(self) -> None:
            if self.age < 0:
                raise ValueError("nobody is younger than 0")
            if self.age > 200:
                raise KeyError("too old")

    def greet(people: list[Picky]): ...

    with pytest.raises(ArgumentError, match=r"people\[0\]: nobody is younger than 0"):
        signature_of(greet).bind({"people": [{"age": -1}]})
    with pytest.raises(ArgumentError, match=r"people\[0\]: KeyError: 'too old'"):
        signature_of(greet).bind({"people": [{"age": 201}]})


def test_values_nested_without_end_are_an_argument_error():
    def take(tree: annotated_as_text.Tree): ...

    value: dict[str, Any] = {"value": 0}
    for _ in range(5_000):
        value = {"value": 0, "children": [value]}
    with pytest.raises(ArgumentError, match="nested too deeply"):
        signature_of(take).bind({"tree": value})


def test_a_function_may_change_its_lists_without_changing_the_call():
    def add(names: list[str], numbers: list[int] | None = None) -> list[str]:
        names.append("b")
        return names

    arguments = {"names": ["a"]}
    assert call(add, arguments) == ["a", "b"]
    assert arguments == {"names": ["a"]}


def test_an_integer_for_a_number_arrives_as_a_float_also_in_lists():
    def scale(factor: float, values: list[float]) -> Any: ...

    _, kwargs = signature_of(scale).bind({"factor": 2, "values": [1, 2.5]})
    assert [type(value) for value in (kwargs["factor"], *kwargs["values"])] == [float, float, float]


def test_true_is_not_an_integer():
    def wait(seconds: int): ...

    with pytest.raises(ArgumentError, match="seconds"):
        signature_of(wait).bind({"seconds": True})


@given(
    st.fixed_dictionaries(
        {"word": st.text()},
        optional={
            "count": st.integers(),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.booleans(),
            "words": st.lists(st.text()),
            "maybe": st.none() | st.text(),
        },
    )
)
def test_plain_arguments_arrive_exactly_as_json_has_them(arguments):
    def take(
        word: str,
        count: int = 0,
        ratio: float = 0.0,
        flag: bool = False,
        words: list[str] | tuple[()] = (),
        maybe: str | None = None,
    ): ...

    def plain(
        word: str,
        count: int = 0,
        ratio: float = 0.0,
        flag: bool = False,
        words: list[str] = [],
        maybe: str | None = None,
    ): ...

    assert signature_of(take).bind(arguments) == ((), arguments)
    assert signature_of(plain).bind(arguments) == ((), arguments)


def test_importing_and_plain_functions_load_no_parser_no_validator_and_no_pydantic():
    code = (
        "import sys\n"
        "from midspan._schema.signature import signature_of\n"
        "def f(x: int) -> int:\n"
        "    'Give it back.'\n"
        "signature_of(f).bind({'x': 1})\n"
        "print([name for name in ('docstring_parser', 'pydantic', 'jsonschema_rs', 'attr') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("hint", "needs"),
    [
        (Context[Deps], True),
        (Context[Deps | None], False),
        (Context[Any], False),
        (Context[Deps] | None, False),
        (RunContext[Deps], True),
        (RunContext[Deps | None], False),
        (RunContext[Any], False),
    ],
    ids=str,
)
def test_a_context_is_needed_unless_its_type_allows_none(hint, needs):
    def greet(context: hint): ...

    assert signature_of(greet).bind.needs_context is needs


def test_a_context_with_a_default_is_not_needed():
    def greet(context: Context[Deps] = Deps("somebody")): ...  # noqa: B008 - what users write

    assert not signature_of(greet).bind.needs_context


def test_only_functions_that_take_their_arguments_as_they_are_need_no_binding():
    def plain(city: str, *, days: int = 3, tags: Literal["a"] | None = None) -> None: ...
    def limited(days: Annotated[int, msgspec.Meta(ge=1)], note: Annotated[str, "A note."]) -> None: ...
    def number(price: float) -> None: ...
    def union(when: datetime.date | str) -> None: ...
    def mixed(city: str, when: datetime.date) -> None: ...
    def items(tags: list[str]) -> None: ...
    def choice(share: Literal[1, 2]) -> None: ...
    def positional(city: str, /) -> None: ...
    def variadic(*cities: str) -> None: ...
    def keywords(**labels: str) -> None: ...
    def context(city: str, deps: Context[int]) -> None: ...

    functions = (plain, limited, number, union, mixed, items, choice, positional, variadic, keywords, context)
    assert [function.__name__ for function in functions if signature_of(function).bind.needs_no_conversion] == [
        "plain",
        "limited",
        "choice",
    ]


def test_further_arguments_may_be_optional_values():
    def take(*values: int | None, **labels: str | None) -> list[Any]:
        return [values, labels]

    args, kwargs = signature_of(take).bind({"values": [1, None], "a": None, "b": "x"})
    assert take(*args, **kwargs) == [(1, None), {"a": None, "b": "x"}]


def test_further_arguments_may_be_arrays():
    def take(*rows: list[int], **columns: list[int]) -> list[Any]:
        return [rows, columns]

    args, kwargs = signature_of(take).bind({"rows": [[1], [2]], "a": [3]})
    assert take(*args, **kwargs) == [([1], [2]), {"a": [3]}]
