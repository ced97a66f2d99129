"""What the offline model reads in a declaration, and how it reads the arguments of a call from a question."""

from typing import Annotated, Any, Literal

import pytest

from midspan import tool
from midspan._types.specs import Effects, ToolSpec
from midspan.providers.offline.language import Question
from midspan.providers.offline.match import MatchedTool, Matcher, Parameter
from tests.providers.offline import sample_tools as tools


def read(question: str, function: Any) -> dict[str, Any] | None:
    matcher = Matcher(MatchedTool(tool(reads="*")(function).spec), Question(question))
    return matcher.arguments if matcher.match() else None


def parameter(name: str, schema: dict[str, Any]) -> Parameter:
    return MatchedTool(ToolSpec("f", "", {"properties": {name: schema}})).parameters[0]


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("the area of a triangle with base 10 and height 5", {"base": 10, "height": 5}),
        ("the area of a triangle with a height of 5 m and a base of 10 m", {"base": 10, "height": 5}),
        ("the area of a triangle, base = 2.5, height = 4", {"base": 2.5, "height": 4}),
        ("the area of a triangle with 10 and 5", None),
        ("the area of a triangle with base 10", None),
        ("the area of a triangle with base 10, height 5 and 7", None),
        ("the area of a triangle with base 10 km and height 5 km", None),
    ],
)
def test_numbers_belong_to_the_parameter_that_is_named_beside_them(
    question: str, arguments: dict[str, Any] | None
) -> None:
    assert read(question, tools.triangle_area) == arguments


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("a route from Oslo to Bergen", {"origin": "Oslo", "destination": "Bergen"}),
        ("a route to New York from Los Angeles", {"origin": "Los Angeles", "destination": "New York"}),
        ("a route between Oslo and Bergen", None),
        ("a route to Bergen", None),
    ],
)
def test_places_of_a_pair_are_distinguished_by_from_and_to(question: str, arguments: dict[str, Any] | None) -> None:
    assert read(question, tools.find_route) == arguments


def find_chair(shade: str) -> None:
    """Find a chair."""


def find_table(shade: str, wood: str = "") -> None:
    """Find a table."""


def test_several_words_are_one_value_only_if_no_other_text_is_missing() -> None:
    assert read("Find a chair dark bottle green", find_chair) == {"shade": "dark bottle green"}
    assert read("Find a table dark bottle green", find_table) is None
    assert read("Find a table green", find_table) == {"shade": "green"}


def weather(city: Annotated[str, "The city, in the format 'City, State'."]) -> None:
    """Get the weather."""


def test_a_city_needs_its_state_if_the_description_says_so() -> None:
    assert read("Get the weather in Austin, TX", weather) == {"city": "Austin, TX"}
    assert read("Get the weather in Austin", weather) is None


def drive(from_city: str, to_city: str) -> None:
    """Plan a drive."""


def test_a_state_after_a_comma_belongs_to_its_city() -> None:
    arguments = {"from_city": "Austin, TX", "to_city": "Boston, MA"}
    assert read("Plan a drive from Austin, TX to Boston, MA", drive) == arguments
    assert read("Plan a drive from Austin, USA to Boston, MA", drive) is None
    assert read("Plan a drive from Austin, Dallas to Boston", drive) is None


def find_person(name: str, city: str) -> None:
    """Find a person."""


def test_a_name_after_in_is_rather_a_place() -> None:
    assert read("Find Bob in Oslo", find_person) == {"name": "Bob", "city": "Oslo"}


def test_a_missing_text_is_filled_with_up_to_three_words() -> None:
    assert read("Add red garden lamps", tools.add_item) == {"name": "red garden lamps"}
    assert read("Add big red garden lamps", tools.add_item) is None


def list_orders(status: Literal["open", "closed"], limit: int = 10, archived: bool = False, note: str = "") -> None:
    """List orders.

    Args:
        limit: How many orders at most.
        archived: Whether archived orders are listed.
        note: A word in the note, such as 'urgent'.
    """


def test_listed_values_options_and_booleans_are_filled_if_the_question_names_them() -> None:
    assert read("List the open orders", list_orders) == {"status": "open"}
    assert read("List closed orders with a limit of 5", list_orders) == {"status": "closed", "limit": 5}
    assert read("List the archived open orders", list_orders) == {"status": "open", "archived": True}
    assert read("List the urgent open orders", list_orders) == {"status": "open", "note": "urgent"}


def test_two_listed_values_for_one_parameter_are_no_reading() -> None:
    assert read("List the open and closed orders", list_orders) is None
    assert read("List the orders", list_orders) is None


def test_name_is_not_used_where_a_code_is_asked_for() -> None:
    def quote(symbol: str) -> None:
        """The price of a stock."""

    assert read("the stock price of ACME", quote) == {"symbol": "ACME"}
    assert read("the stock price of Acme Corporation", quote) is None


def test_date_in_any_spelling_is_given_in_iso_form_if_no_other_is_asked_for() -> None:
    def events(date: str) -> None:
        """Events on a date.

        Args:
            date: As DD.MM.YYYY.
        """

    def iso_events(date: str) -> None:
        """Events on a date.

        Args:
            date: As YYYY-MM-DD.
        """

    def named_events(date: str) -> None:
        """Events on a date.

        Args:
            date: In ISO 8601.
        """

    for date in (
        "2026-11-16",
        "2026/11/16",
        "2026.11.16",
        "16 Nov 2026",
        "the 16th of november 2026",
        "Nov. 16th, 2026",
    ):
        assert read(f"events on {date}", iso_events) == {"date": "2026-11-16"}
    assert read("events on February 30, 2026", iso_events) is None
    assert read("events on 2026-11-16", named_events) == {"date": "2026-11-16"}
    assert read("events on 2026-11-16", events) is None
    assert read("events tomorrow", iso_events) is None


def test_expression_is_written_as_the_calculator_reads_it() -> None:
    def calculate(expression: str) -> None:
        """Calculate an arithmetic expression."""

    assert read("What is 17.5% of 2,480?", calculate) == {"expression": "17.5% of 2480"}
    assert read("what is 12 times 9", calculate) == {"expression": "12 * 9"}
    assert read("What is (1 + 2) / 4?", calculate) == {"expression": "(1 + 2) / 4"}
    assert read("What is 5 of 7?", calculate) is None
    assert read("What is 5?", calculate) is None


def average(numbers: list[float], digits: int = 0) -> None:
    """The average of numbers."""


@pytest.mark.parametrize("numbers", ["1, 2 and 3.5", "[1, 2, 3.5]", "1 and 2, and 3.5"])
def test_values_that_commas_connect_are_a_list(numbers: str) -> None:
    assert read(f"the average of the numbers {numbers}", average) == {"numbers": [1, 2, 3.5]}
    assert read(f"the average of the numbers {numbers} with 2 digits", average) == {
        "numbers": [1, 2, 3.5],
        "digits": 2,
    }


def test_free_text_is_taken_only_if_it_is_quoted() -> None:
    def count_words(text: str) -> None:
        """Count the words in a text."""

    assert read("Count the words in 'to be'", count_words) == {"text": "to be"}
    assert read("Count the words in Hamlet", count_words) is None


def test_repeated_name_is_one_value() -> None:
    question = "I will be in Oslo. What is the weather in Oslo?"
    assert read(question, tools.get_weather) == {"city": "Oslo"}


def test_verbs_are_those_that_name_and_description_begin_with() -> None:
    assert MatchedTool(ToolSpec("cancel_order", "Cancels an order.")).verbs == {"cancel"}
    assert MatchedTool(ToolSpec("shop.order_item", "Buys an item.")).verbs == {"order", "buy"}
    assert MatchedTool(ToolSpec("turn_off", "Turn off a lamp.")).verbs == {"turn"}
    assert MatchedTool(ToolSpec("turn_off", "Turn off a lamp.")).particles == {"off"}
    assert MatchedTool(ToolSpec("x")).verbs == {"x"}


def test_only_a_tool_that_declares_reads_and_no_writes_is_read_only() -> None:
    assert MatchedTool(ToolSpec("a", effects=Effects(reads=("x",)))).is_read_only
    assert not MatchedTool(ToolSpec("a")).is_read_only
    assert not MatchedTool(ToolSpec("a", effects=Effects(idempotent=True))).is_read_only
    assert not MatchedTool(ToolSpec("a", effects=Effects(reads=("x",), writes=("x",)))).is_read_only


def test_kind_side_and_units_of_a_parameter_come_from_its_words() -> None:
    city = parameter("to_city", {"type": "string"})
    assert (city.kind, city.side) == ("place", "to")
    speed = parameter("speed", {"type": "number", "description": "The speed in km."})
    assert (speed.kind, speed.side, speed.units) == ("number", "", {"kilometer"})
    assert parameter("when", {"type": "string"}).kind == "date"
    assert parameter("note", {"type": "string", "description": "A URL."}).kind == "link"


def test_types_are_read_in_any_spelling() -> None:
    spellings = [{"type": "int"}, {"type": ["null", "integer"]}, {"anyOf": [{"type": "null"}, {"type": "Integer"}]}]
    assert [parameter("a", schema).type for schema in spellings] == ["integer"] * 3
    assert parameter("a", {}).type == "any"
