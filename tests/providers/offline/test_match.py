"""How the arguments of a call are read from a question."""

from typing import Any, Literal

import pytest

from midspan import tool
from midspan.providers.offline.declaration import Tool
from midspan.providers.offline.language import Question
from midspan.providers.offline.match import Matcher
from tests.providers.offline import sample_tools as tools


def read(question: str, function: Any) -> dict[str, Any] | None:
    match = Matcher(Tool(tool(reads="*")(function).spec), Question(question)).match()
    return None if match is None else match.arguments


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
def test_places_of_a_pair_are_told_apart_by_from_and_to(question: str, arguments: dict[str, Any] | None) -> None:
    assert read(question, tools.find_route) == arguments


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


def test_percent_is_a_fraction_unless_the_parameter_is_a_percentage() -> None:
    def interest(rate: float, fee_percent: int = 0) -> None:
        """The interest at a rate."""

    assert read("the interest at a rate of 5%", interest) == {"rate": 0.05}
    assert read("the interest at a rate of 5% and a fee percent of 2%", interest) == {"rate": 0.05, "fee_percent": 2}


def test_name_is_not_used_where_a_code_is_asked_for() -> None:
    def quote(symbol: str) -> None:
        """The price of a stock."""

    assert read("the stock price of ACME", quote) == {"symbol": "ACME"}
    assert read("the stock price of Acme Corporation", quote) is None


def test_date_is_used_only_in_the_form_that_is_asked_for() -> None:
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

    assert read("events on 2026-11-16", iso_events) == {"date": "2026-11-16"}
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
