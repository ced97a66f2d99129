"""How much of a question the call of a read-only tool must account for."""

from typing import Any

import pytest

from midspan._types.specs import Effects, ToolSpec
from midspan.providers.offline.choose import choose_calls
from tests.providers.offline import sample_tools as tools
from tests.providers.offline.sample_tools import call, reading, writing


def spec(name: str, description: str = "", *, optional: tuple[str, ...] = (), **types: str) -> ToolSpec:
    """A read-only tool; a type may be followed by a description: `number The width.`."""
    split = {key: value.partition(" ") for key, value in types.items()}
    properties = {key: {"type": kind, "description": text} for key, (kind, _, text) in split.items()}
    required = [key for key in types if key not in optional]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name, description, schema, effects=Effects(reads=("*",)))


def names(question: str, *offered: ToolSpec) -> list[str]:
    return [name for name, _ in choose_calls(question, offered)]


LEFT = ["", ". Purple", ". Purple elephants", ". Purple elephants dance"]
ONE, TWO = "with distance 5", "with distance 5 and people 3"


@pytest.mark.parametrize(
    ("topics", "values", "most"),
    [
        ("cost", ONE, 0),
        ("trip cost", ONE, 3),
        ("trip cost table", ONE, 3),
        ("cost", TWO, 2),
        ("trip cost table", TWO, 2),
    ],
)
@pytest.mark.parametrize("optional", [{}, {"digits": "integer"}])
def test_words_may_be_left_over_if_the_tool_or_two_arguments_are_named(
    topics: str, values: str, most: int, optional: dict[str, str]
) -> None:
    trip = spec("trip_cost_table", optional=("people", *optional), distance="number", people="integer", **optional)
    assert [bool(names(f"{topics} {values}{left}", trip)) for left in LEFT] == [count <= most for count in range(4)]


@pytest.mark.parametrize(
    ("topics", "values", "most"),
    [
        ("cost", ONE, -1),
        ("trip cost", ONE, -1),
        ("trip cost table", ONE, 0),
        ("cost", TWO, 0),
        ("trip cost", TWO, 0),
        ("trip cost table", TWO, 1),
    ],
)
def test_fewer_words_may_be_left_over_if_an_option_could_be_meant(topics: str, values: str, most: int) -> None:
    trip = spec("trip_cost_table", optional=("people", "note"), distance="number", people="integer", note="string")
    assert [bool(names(f"{topics} {values}{left}", trip)) for left in LEFT] == [count <= most for count in range(4)]


def test_option_that_the_question_fills_cannot_be_meant_otherwise() -> None:
    trip = spec("trip_cost_table", optional=("note",), distance="number", note="string")
    assert names("cost with distance 5 and note 'a'. Purple elephants", trip)
    assert not names("cost table", spec("cost_table", optional=("note",), note="string"))


def test_half_of_the_name_is_enough_for_a_question_of_two_sentences() -> None:
    trip = spec("trip_cost", distance="number")
    assert names("cost with distance 5. Purple elephants", trip)
    assert not names("cost with distance 5 for purple elephants", trip)


CIRCLE = spec("measure_round_surface_extent", "The area of a circle.", radius="number")


@pytest.mark.parametrize("question", ["Area of a circle with radius 5", "Surface area of a circle with radius 5"])
def test_tool_that_is_hardly_named_must_be_far_ahead_of_another(question: str) -> None:
    near = spec("square", "The area of a circle or square.", side="number Not a radius.")
    far = spec("square", "The area of a circle or square.", side="number")
    assert names(question, CIRCLE) == []
    assert names(question, CIRCLE, far) == [CIRCLE.name]
    if question.startswith("Area"):
        assert names(question, CIRCLE, near) == []
    assert names(f"{question} purple", CIRCLE, far) == []


def test_words_of_the_name_count_twice_and_those_of_descriptions_of_parameters_a_quarter() -> None:
    fog = spec("get_rain", city="string A city with fog.")
    assert names("rain and fog in Oslo", fog, spec("get_information", "Rain or fog.", city="string")) == ["get_rain"]
    snow = spec("get_rain", city="string A city with fog or snow.")
    general = spec("get_information", "Rain, fog or snow.", city="string")
    assert names("rain, fog and snow in Oslo", snow, general) == ["get_information"]


def test_tool_without_a_topic_needs_an_argument() -> None:
    assert names("Get the information", spec("get_information")) == []
    assert names("cost with distance 5", spec("x_y_z_cost", distance="number")) == ["x_y_z_cost"]
    assert names("Get the rain", spec("get_rain")) == ["get_rain"]
    assert names("Get the information in Oslo", spec("get_information", city="string")) == ["get_information"]


def test_word_of_another_tool_is_not_left_over() -> None:
    question = "the area of a triangle with base 10 and height 5 for my lawn"
    assert names(question, *reading(tools.triangle_area)) == ["triangle_area"]
    assert names(question, *reading(tools.triangle_area), spec("mow_lawn")) == []


def test_verb_that_the_tool_does_not_know_is_not_left_over() -> None:
    assert call("Paint a triangle area with base 10 and height 5", reading(tools.triangle_area)) is None


def test_command_of_one_word_is_followed() -> None:
    def off() -> None:
        """Off."""

    assert call("off", writing(off)) == ("off", {})
