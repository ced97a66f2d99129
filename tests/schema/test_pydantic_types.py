"""pydantic types in type hints."""

import dataclasses
import datetime
import decimal
from typing import Annotated

import jsonschema_rs
import pytest

from midspan._schema.arguments import SchemaValidator
from midspan._schema.jsonable import to_jsonable
from midspan._schema.signature import signature_of
from midspan.errors import ArgumentError

pydantic = pytest.importorskip("pydantic")
annotated_types = pytest.importorskip("annotated_types")


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: str
    title: str = "home"
    since: datetime.date | None = pydantic.Field(default=None, alias="from", description="since when")


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    addresses: list[Address] = pydantic.Field(default=[])


class Folder(pydantic.BaseModel):
    name: str
    inner: "list[Folder]" = pydantic.Field(default=[])


@pydantic.dataclasses.dataclass
class Meal:
    dish: str
    price: float = pydantic.Field(ge=0)


def test_a_pydantic_model_becomes_a_schema_and_its_values_are_converted():
    def move(person: Person) -> Address:
        return person.addresses[0]

    signature = signature_of(move)
    assert signature.parameters["properties"]["person"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "addresses": {
                "type": "array",
                "default": [],
                "items": {
                    "type": "object",
                    "description": "Where somebody lives.",
                    "properties": {
                        "street": {"type": "string"},
                        "title": {"type": "string", "default": "home"},
                        "from": {
                            "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                            "default": None,
                            "description": "since when",
                        },
                    },
                    "required": ["street"],
                },
            },
        },
        "required": ["name"],
    }
    assert "$defs" not in signature.parameters
    _, kwargs = signature.bind({"person": {"name": "Ann", "addresses": [{"street": "A", "from": "2024-01-01"}]}})
    assert kwargs["person"] == Person(name="Ann", addresses=[Address(**{"street": "A", "from": "2024-01-01"})])
    result = to_jsonable(move(**kwargs))
    assert result == {"street": "A", "title": "home", "from": "2024-01-01"}
    assert jsonschema_rs.validator_for(signature.response).is_valid(result)


def test_a_recursive_model_refers_to_itself():
    def count(folder: Folder, other: Folder | None = None) -> int:
        return len(folder.inner)

    signature = signature_of(count)
    assert signature.parameters["properties"]["folder"] == {"$ref": "#/$defs/Folder"}
    assert list(signature.parameters["$defs"]) == ["Folder"]
    _, kwargs = signature.bind({"folder": {"name": "a", "inner": [{"name": "b"}]}})
    assert kwargs["folder"].inner == [Folder(name="b")]


def test_models_can_be_nested_in_lists_unions_and_dataclasses():
    from dataclasses import dataclass

    @dataclass
    class Visit:
        who: Person
        meals: list[Meal]

    def plan(visit: Visit, extra: Address | Meal | None = None) -> Visit:
        return visit

    signature = signature_of(plan)
    given = {
        "visit": {"who": {"name": "Ann"}, "meals": [{"dish": "soup", "price": 3}]},
        "extra": {"dish": "tea", "price": 1},
    }
    assert jsonschema_rs.validator_for(signature.parameters).is_valid(given)
    _, kwargs = signature.bind(given)
    assert kwargs == {"visit": Visit(Person(name="Ann"), [Meal("soup", 3.0)]), "extra": Meal("tea", 1.0)}
    assert to_jsonable(plan(**kwargs)) == {
        "who": {"name": "Ann", "addresses": []},
        "meals": [{"dish": "soup", "price": 3.0}],
    }


def test_a_validation_error_of_a_model_is_reported_with_its_path():
    def greet(people: list[Person]): ...

    with pytest.raises(ArgumentError) as caught:
        signature_of(greet).bind({"people": [{"name": "A", "addresses": [{}]}]})
    assert str(caught.value).splitlines() == [
        "people[0].name: String should have at least 2 characters",
        "people[0].addresses[0].street: Field required",
    ]


def test_a_field_describes_and_limits_any_parameter():
    def book(
        nights: Annotated[int, pydantic.Field(description="how many", ge=1, le=30, multiple_of=1)],
        name: Annotated[str, pydantic.Field(pattern="^[A-Z]", min_length=2, examples=["Ann"])],
    ): ...

    signature = signature_of(book)
    assert signature.parameters["properties"] == {
        "nights": {"type": "integer", "minimum": 1, "maximum": 30, "multipleOf": 1, "description": "how many"},
        "name": {"type": "string", "pattern": "^[A-Z]", "minLength": 2, "examples": ["Ann"]},
    }
    for arguments in ({"nights": 0, "name": "Ann"}, {"nights": 1, "name": "ann"}):
        assert not SchemaValidator(signature.parameters).accepts(arguments)


def test_a_limit_without_a_json_schema_keyword_is_enforced_by_pydantic():
    def pay(
        amount: Annotated[decimal.Decimal, pydantic.Field(gt=0, description="In euros.")],
        day: Annotated[datetime.date, annotated_types.Ge(datetime.date(2024, 1, 1))],
    ): ...

    signature = signature_of(pay)
    assert signature.parameters["properties"]["amount"]["description"] == "In euros."
    _, kwargs = signature.bind({"amount": "1.50", "day": "2024-01-02"})
    assert kwargs == {"amount": decimal.Decimal("1.50"), "day": datetime.date(2024, 1, 2)}
    for amount, day in (("-1", "2024-01-02"), ("1", "2023-01-01"), ("NaN", "2024-01-02"), ("1E+999999", "2024-01-02")):
        with pytest.raises(ArgumentError, match=r"greater than|a finite number"):
            signature.bind({"amount": amount, "day": day})


def test_a_limit_that_is_not_json_serializable_is_enforced_by_pydantic():
    def pay(amount: Annotated[float, annotated_types.Gt(decimal.Decimal("0.25"))]): ...

    signature = signature_of(pay)
    assert signature.parameters["properties"]["amount"] == {"type": "number"}
    assert signature.bind({"amount": 0.5}) == ((), {"amount": 0.5})
    with pytest.raises(ArgumentError, match=r"greater than 0\.25"):
        signature.bind({"amount": -0.5})


def test_pydantic_types_are_converted_by_pydantic():
    def fetch(url: pydantic.HttpUrl) -> pydantic.HttpUrl:
        return url

    signature = signature_of(fetch)
    assert signature.parameters["properties"]["url"]["format"] == "uri"
    _, kwargs = signature.bind({"url": "https://example.org/a"})
    assert type(kwargs["url"]) is pydantic.HttpUrl
    assert to_jsonable(fetch(**kwargs)) == "https://example.org/a"
    with pytest.raises(ArgumentError, match="url: Input should be a valid URL"):
        signature.bind({"url": "no"})


def test_a_generic_model_and_a_root_model_are_models():
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class Page(pydantic.BaseModel, Generic[T]):
        items: list[T]

    class Tags(pydantic.RootModel[list[str]]):
        pass

    def show(page: Page[int], tags: Tags) -> Tags:
        return tags

    signature = signature_of(show)
    assert signature.parameters["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    _, kwargs = signature.bind({"page": {"items": [1]}, "tags": ["a"]})
    assert kwargs["page"].items == [1]
    assert to_jsonable(show(**kwargs)) == ["a"]


def test_shared_models_are_defined_once_and_equal_names_separately():
    def outer():
        class Person(pydantic.BaseModel):
            age: int

        return Person

    other = outer()

    def compare(one: list[Person], two: list[Person], three: list[other], four: list[other], home: Address): ...

    signature = signature_of(compare)
    definitions = signature.parameters["$defs"]
    assert [definition.get("required") for definition in definitions.values()] == [["name"], ["age"]]
    given = {"one": [], "two": [{"name": "Ann"}], "three": [], "four": [{"age": 3}], "home": {"street": "A"}}
    assert jsonschema_rs.validator_for(signature.parameters).is_valid(given)
    _, kwargs = signature.bind(given)
    assert kwargs["four"] == [other(age=3)]


def test_a_reference_out_of_the_document_is_left_as_it_is():
    def take(value: Annotated[dict[str, int], pydantic.WithJsonSchema({"$ref": "https://example.org/a"})]): ...

    assert signature_of(take).parameters["properties"]["value"] == {"$ref": "https://example.org/a"}


def test_a_limit_of_pydantic_does_not_change_how_the_type_is_read():
    @dataclasses.dataclass
    class Step:
        name: str
        dry_run: bool = False

    def run(
        steps: Annotated[list[Step], pydantic.Field(max_length=5)], data: Annotated[bytes, pydantic.Field(max_length=9)]
    ): ...

    signature = signature_of(run)
    assert signature.parameters["properties"]["steps"]["items"]["additionalProperties"] is False
    assert signature.parameters["properties"]["data"]["contentEncoding"] == "base64"


def test_a_dataclass_of_pydantic_becomes_json_under_its_aliases() -> None:
    @pydantic.dataclasses.dataclass
    class Place:
        name: str = pydantic.Field(alias="the name")

    assert to_jsonable(Place(**{"the name": "Oslo"})) == {"the name": "Oslo"}
