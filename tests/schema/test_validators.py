"""Validators in type hints and fields as parameter defaults: what a schema cannot express still runs."""

import asyncio
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from midspan._schema.output_type import OutputType
from midspan._schema.signature import signature_of
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ArgumentError, SchemaError
from midspan.tools.execution import execute
from midspan.tools.function import tool

pydantic = pytest.importorskip("pydantic")
annotated_types = pytest.importorskip("annotated_types")
attrs = pytest.importorskip("attrs")


def run(function: Any, **arguments: Any) -> ToolResult:
    made = tool(function)
    return asyncio.run(execute(made, ToolCall("1", made.name, arguments)))


def inside(path: str) -> str:
    if ".." in path:
        raise ValueError("only paths inside the folder")
    return path


def raises(error: Exception) -> Callable[[Any], Any]:
    def validate(value: Any) -> Any:
        raise error

    return validate


class File(TypedDict):
    path: Annotated[str, pydantic.AfterValidator(inside)]


class Pair(NamedTuple):
    left: Annotated[str, pydantic.AfterValidator(inside)]
    right: int = 0


class Parcel(msgspec.Struct):
    path: Annotated[str, pydantic.AfterValidator(inside)]


class Even(annotated_types.Predicate):
    pass


class AtLeast(annotated_types.Ge):
    """A limit with an attribute of its own."""

    def __init__(self, limit: Any) -> None:
        super().__init__(limit)
        vars(self)["reason"] = "too small"


SAFE = Annotated[str, pydantic.AfterValidator(inside)]


@pytest.mark.parametrize(
    ("hint", "accepted", "rejected", "path"),
    [
        (SAFE, "a", "..", "value"),
        (SAFE | None, "a", "..", "value"),
        (list[SAFE], ["a"], ["a", ".."], "value[1]"),
        (dict[str, SAFE], {"x": "a"}, {"x": ".."}, "value.x"),
        (tuple[int, SAFE], [1, "a"], [1, ".."], "value[1]"),
        (File, {"path": "a"}, {"path": ".."}, "value.path"),
        (Pair, {"left": "a"}, {"left": ".."}, "value.left"),
        (Parcel, {"path": "a"}, {"path": ".."}, "value.path"),
        (list[File], [{"path": "a"}], [{"path": ".."}], "value[0].path"),
        (Annotated[SAFE, pydantic.Field(min_length=1)], "a", "..", "value"),
        (Annotated[SAFE, "The file."], "a", "..", "value"),
    ],
)
def test_a_pydantic_validator_runs_at_every_depth(hint: Any, accepted: Any, rejected: Any, path: str) -> None:
    def read(value: hint) -> str:
        return "read"

    assert run(read, value=accepted).value == "read"
    result = run(read, value=rejected)
    assert result.is_error
    assert result.value == f"invalid parameters: {path}: only paths inside the folder"


def test_each_kind_of_pydantic_validator_keeps_its_meaning() -> None:
    def double(value: Any, handler: Any) -> int:
        return handler(value) * 2

    def take(
        before: Annotated[int, pydantic.BeforeValidator(lambda value: value + 1)],
        after: Annotated[int, pydantic.AfterValidator(lambda value: value + 10)],
        plain: Annotated[int, pydantic.PlainValidator(lambda value: [value])],
        wrap: Annotated[int, pydantic.WrapValidator(double)],
        text: Annotated[str, pydantic.StringConstraints(strip_whitespace=True, to_upper=True)],
        with_info: Annotated[int, pydantic.AfterValidator(lambda value, info: (value, info.field_name))],
    ) -> list[Any]:
        return [before, after, plain, wrap, text, with_info]

    result = run(take, before=1, after=1, plain=1, wrap=1, text=" a ", with_info=1)
    assert result.value == [2, 11, [1], 2, "A", [1, None]]
    assert signature_of(take).parameters["properties"]["after"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("hint", "accepted", "rejected"),
    [
        (Annotated[int, annotated_types.Predicate(lambda number: number > 0)], 1, -5),
        (Annotated[int, Even(lambda number: number % 2 == 0)], 2, 3),
        (Annotated[int, AtLeast(1)], 1, 0),
        (Annotated[float, annotated_types.Predicate(math.isfinite)], 1.5, None),
        (annotated_types.LowerCase[str], "a", "A"),
        (Annotated[str, annotated_types.Predicate(annotated_types.Not(str.isdigit))], "a", "1"),
        (list[Annotated[int, annotated_types.Predicate(lambda number: number % 2 == 0)]], [2], [2, 3]),
        (Annotated[list[int], annotated_types.Len(1, 2)], [1], [1, 2, 3]),
        (Annotated[int, annotated_types.Interval(gt=0, le=3)], 3, 4),
    ],
)
def test_annotated_types_are_enforced(hint: Any, accepted: Any, rejected: Any) -> None:
    def take(value: hint) -> str:
        return "taken"

    assert run(take, value=accepted).value == "taken"
    result = run(take, value=rejected)
    assert result.is_error
    assert result.value.startswith("invalid parameters: value")


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), ZeroDivisionError("x"), AssertionError("x")])
@pytest.mark.parametrize(
    "annotate",
    [
        lambda error: Annotated[str, pydantic.AfterValidator(raises(error))],
        lambda error: Annotated[str, annotated_types.Predicate(raises(error))],
        lambda error: list[Annotated[str, pydantic.BeforeValidator(raises(error))]],
    ],
)
def test_whatever_a_validator_raises_is_a_problem_of_the_argument(error: Exception, annotate: Any) -> None:
    hint = annotate(error)

    def take(value: hint) -> str:
        return "taken"

    with pytest.raises(ArgumentError, match=r"value.*x"):
        signature_of(take).bind({"value": ["a"] if "list" in str(hint) else "a"})


@pytest.mark.parametrize(
    "error", [ValueError("no"), TypeError("no"), KeyError("no"), RuntimeError("no"), LookupError()]
)
def test_whatever_a_constructor_raises_is_a_problem_of_arguments_and_of_answers(error: Exception) -> None:
    @dataclass
    class City:
        name: str

        def __post_init__(self) -> None:
            if self.name == "bad":
                raise error

    def visit(cities: list[City]) -> str:
        return "visited"

    assert run(visit, cities=[{"name": "Oslo"}]).value == "visited"
    assert run(visit, cities=[{"name": "Oslo"}, {"name": "bad"}]).value.startswith("invalid parameters: cities[1]: ")
    assert OutputType(City).parse({"name": "Oslo"}) == City("Oslo")
    with pytest.raises(ArgumentError):
        OutputType(City).parse({"name": "bad"})


def test_keyboard_interrupt_in_a_constructor_gets_through() -> None:
    @dataclass
    class City:
        name: str

        def __post_init__(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OutputType(City).parse({"name": "Oslo"})


# Fields as the defaults of parameters


def test_a_pydantic_field_as_default_describes_limits_and_gives_the_default() -> None:
    def book(
        city: str = pydantic.Field(..., description="Where", min_length=2),
        nights: int = pydantic.Field(1, ge=1, le=14),
        tags: list[str] = pydantic.Field(default_factory=lambda: ["new"]),  # noqa: B008 - what users write
        room: Literal["single", "double"] = pydantic.Field(default="single"),
        note: str | None = pydantic.Field(None),
    ) -> str:
        return f"{city} {nights} {tags} {room} {note}"

    assert signature_of(book).parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "description": "Where"},
            "nights": {"type": "integer", "minimum": 1, "maximum": 14, "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "room": {"type": "string", "enum": ["single", "double"], "default": "single"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert run(book, city="Oslo").value == "Oslo 1 ['new'] single None"
    assert run(book).value == "invalid parameters: city: is required but missing; expected string"
    assert run(book, city="Oslo", nights=9000).value == "invalid parameters: nights: expected at most 14, got 9000"


def test_a_pydantic_field_as_default_is_never_passed_as_the_value() -> None:
    def take(
        first: int = pydantic.Field(),
        second: int = pydantic.Field(5),
        /,
        *rest: int,
        third: dict[str, int] = pydantic.Field(default_factory=dict),  # noqa: B008 - as FastAPI has it
    ) -> Any:
        return [first, second, list(rest), third]

    signature = signature_of(take)
    assert signature.parameters["required"] == ["first"]
    assert signature.parameters["properties"]["second"] == {"type": "integer", "default": 5}
    args, kwargs = signature.bind({"first": 1})
    assert take(*args, **kwargs) == [1, 5, [], {}]
    args, kwargs = signature.bind({"first": 1, "rest": [2], "third": {"a": 1}})
    assert take(*args, **kwargs) == [1, 5, [2], {"a": 1}]
    with pytest.raises(ArgumentError, match="expected object with first"):
        signature.bind({})


@pytest.mark.parametrize("default", [dataclasses.field(default=5), msgspec.field(default=5)])
def test_a_field_of_a_class_as_default_is_an_error(default: Any) -> None:
    def take(count: int = default) -> None: ...

    with pytest.raises(SchemaError, match=r"parameter 'count': field\(\) is for classes; write the default value"):
        tool(take)


# Errors of pydantic when a tool is made


class Unfinished(pydantic.BaseModel):
    rows: "list[Undefined]" = []  # type: ignore[name-defined]  # noqa: F821, RUF012


class Opaque:
    pass


@pytest.mark.parametrize(
    "hint", [Unfinished, list[Unfinished], Annotated[Opaque, pydantic.AfterValidator(lambda value: value)]]
)
def test_an_error_of_pydantic_when_a_tool_is_made_is_a_schema_error(hint: Any) -> None:
    def take(value: hint) -> None: ...

    with pytest.raises(
        SchemaError, match=r"parameter 'value' of take: pydantic has no JSON Schema for it: .*(pydantic-core|defined)"
    ):
        tool(take)


def test_a_text_beside_a_validator_is_the_description() -> None:
    def read(path: Annotated[SAFE, "The file."]) -> str: ...

    assert signature_of(read).parameters["properties"]["path"] == {"type": "string", "description": "The file."}


def test_only_limits_that_json_schema_cannot_express_need_pydantic() -> None:
    def limited(
        days: Annotated[int, annotated_types.Ge(1)], name: Annotated[str, pydantic.StringConstraints(min_length=1)]
    ) -> str:
        return name * days

    def stripped(text: Annotated[str, pydantic.StringConstraints(min_length=1, strip_whitespace=True)]) -> str:
        return text

    assert signature_of(limited).bind.needs_no_conversion
    assert run(stripped, text=" a ").value == "a"
