"""How a question is read as a call: the arguments, and the words that are left over."""

from typing import Any

import pytest

from midspan._types.specs import Effects, ToolSpec
from midspan.providers.offline.language import Question
from midspan.providers.offline.match import MatchedTool, Matcher, Parameter

STRING, NUMBER, INTEGER, BOOLEAN = ({"type": name} for name in ("string", "number", "integer", "boolean"))


def spec(name: str, description: str = "", optional: tuple[str, ...] = (), /, **parameters: Any) -> ToolSpec:
    required = [key for key in parameters if key not in optional]
    schema = {"type": "object", "properties": parameters, "required": required}
    return ToolSpec(name, description, schema, effects=Effects(reads=("*",)))


def parameter(**schema: Any) -> Parameter:
    return MatchedTool(spec("f", size=schema)).parameters[0]


NAMES = spec("find", name=STRING, city=STRING)
STOCK = spec("stock", "How many pieces are in stock.", item=STRING)
COLORS = spec("stock", item=STRING, color=STRING)
COUNTS = spec("stock", item=STRING, count=INTEGER)
DRIVE = spec("drive", distance=NUMBER | {"description": "In km."}, time=NUMBER | {"description": "In hours."})
AVERAGE = spec("average", numbers={"type": "array", "items": NUMBER}, digits=INTEGER)
CALCULATE = spec("calculate", expression=STRING)
ORDERS = spec("list_orders", status={"type": "string", "enum": ["open", "yet open", "b", "10"]})
YEARS = spec("list_orders", year={"type": "string", "enum": ["2024", "2025"]})
BOOK = spec("book", author=STRING, title=STRING)
EVENTS = spec("events", date=STRING | {"description": "When."}, link=STRING)
SWITCHES = spec(
    "list",
    "",
    ("include_archived", "loud"),
    include_archived=BOOLEAN,
    loud={"type": "string", "enum": ["FALSE", "TRUE"]},
)
HOUSE = spec("house", bedrooms=INTEGER, baths=INTEGER)
CUPS = spec("list", "", ("n",), n=INTEGER | {"description": "Cups."})
NOTES = spec("list_notes", note=STRING | {"description": "Such as 'urgent' or 'late'."})


@pytest.mark.parametrize(
    ("tool", "question", "arguments"),
    [
        *((NAMES, f"find Bob {word} Oslo", {"city": "Oslo", "name": "Bob"}) for word in ("in", "at", "near")),
        *((NAMES, f"find Bob {word} Oslo", {"city": "Oslo", "name": "Bob"}) for word in ("around", "for")),
        (NAMES, "find Bob, Oslo", None),
        (STOCK, "how many items lamps are in stock", {"item": "lamps"}),
        (STOCK, "the lamp item in stock", {"item": "lamp"}),
        (STOCK, "item lamps in the garden stock", {"item": "lamps"}),
        (STOCK, "big red garden lamps stock", None),
        (STOCK, "lamps in stock and chairs", None),
        (STOCK, "bob's stock", {"item": "bob"}),
        (COLORS, "how many lamps are in stock", None),
        (COLORS, "red stock with color 'blue'", {"item": "red", "color": "blue"}),
        (COUNTS, "stock of 5 lamps", {"count": 5, "item": "lamp"}),
        (COUNTS, "stock 5 red lamps", {"count": 5, "item": "red lamp"}),
        (DRIVE, "drive 5 km in 2 hours", {"distance": 5, "time": 2}),
        (DRIVE, "drive 2 hours for 5km", {"distance": 5, "time": 2}),
        (DRIVE, "drive for 5 2 hours", {"distance": 5, "time": 2}),
        (DRIVE, "drive 5 and 2", None),
        (DRIVE, "drive 5 miles 2 hours", None),
        (AVERAGE, "average of 1, 2 and 3 with 2 digits", {"digits": 2, "numbers": [1, 2, 3]}),
        (AVERAGE, "average of 1 or 2 with 2 digits", None),
        (AVERAGE, "average of Bob and 3 with 2 digits", None),
        (CALCULATE, "calculate 3 Multiplied by 4", {"expression": "3 * 4"}),
        (CALCULATE, "calculate (1 + 2", None),
        (CALCULATE, "calculate 1 + 2 and 3 + 4", None),
        (CALCULATE, "calculate 1 + 2 for 5", None),
        (ORDERS, "open orders", {"status": "open"}),
        (ORDERS, "orders yet open", {"status": "yet open"}),
        (ORDERS, "orders with status 10", {"status": "10"}),
        (ORDERS, "10 orders", None),
        (ORDERS, "orders with status b", None),
        (YEARS, "orders of 2024", {"year": "2024"}),
        (YEARS, "orders of 2024 and 2025", None),
        (BOOK, "book by Kafka 'Amerika'", {"author": "Kafka", "title": "Amerika"}),
        (BOOK, "book called Amerika by Kafka", {"author": "Kafka", "title": "Amerika"}),
        (EVENTS, "events 2026-11-16 http://a.b", {"date": "2026-11-16", "link": "http://a.b"}),
        (EVENTS, "events on http://a.b", None),
        (SWITCHES, "list archived", {"include_archived": True}),
        (SWITCHES, "list loud", {"loud": "TRUE"}),
        (SWITCHES, "list", {}),
        (NOTES, "list urgent notes", {"note": "urgent"}),
        (NOTES, "list urgent late notes", None),
        *((spec("get_user", user_id=STRING), f"get user {text}", {"user_id": "5"}) for text in ("5", "#5")),
        *((spec("get_user", user_id=INTEGER), f"get user {text}", {"user_id": 5}) for text in ("5", "#5")),
        *((spec("get_user", user_id=STRING), f"get {text}", None) for text in ("5", "5 users", "user 5.5")),
        (spec("get_user", user_id=STRING), "get user 5 km", None),
        (spec("drive", "", ("mood",), distance=NUMBER, mood=STRING), "drive 5 'fast'", {"distance": 5, "mood": "fast"}),
        (spec("drive", "", ("speed",), distance=NUMBER, speed=NUMBER), "drive 5", {"distance": 5}),
        (HOUSE, "house with 3 bedrooms and 2 baths", {"bedrooms": 3, "baths": 2}),
        (HOUSE, "house with 3 and 2 baths", {"bedrooms": 3, "baths": 2}),
        (HOUSE, "house with 3 rooms and 2 doors", None),
        (spec("route", start=STRING, end=STRING), "route to the Ruhr from the Alps", {"start": "Alps", "end": "Ruhr"}),
        (spec("route", start=STRING, end=STRING), "route to old Ruhr from old Alps", None),
        (spec("list", sort={"enum": ["the best", "+"]}), "list the best", None),
        (spec("stock", symbol=STRING), "stock of GOOGL", {"symbol": "GOOGL"}),
        (spec("stock", symbol=STRING), "stock of GOOGLE", None),
        (spec("drive", "", ("mood",), mood=STRING), "drive 'fast'", {"mood": "fast"}),
        (spec("bmi"), "the BMI", {}),
        (spec("weather", city=STRING), "weather oslo", None),
        (spec("weather", city=STRING | {"description": "Such as 'oslo'."}), "weather oslo", None),
        (spec("weather", count=INTEGER), "weather oslo", None),
        (ORDERS, "list paid orders", None),
        (spec("circle", radius=NUMBER, height=NUMBER), "radius 5 and 3", {"radius": 5, "height": 3}),
    ],
)  # fmt: skip
def test_arguments_that_a_question_holds(tool: ToolSpec, question: str, arguments: dict[str, Any] | None) -> None:
    matcher = Matcher(MatchedTool(tool), Question(question))
    assert (matcher.arguments if matcher.match() else None) == arguments


@pytest.mark.parametrize(
    ("tool", "question", "has_bare_text", "unexplained"),
    [
        (STOCK, "red lamp items in stock", True, []),
        (STOCK, "the lamp item in stock", False, []),
        (STOCK, "item lamps in the garden stock", False, ["garden"]),
        (STOCK, "how many lamps are in stock", False, []),
        (COUNTS, "stock of 5 lamps", False, []),
        (DRIVE, "drive 5 km in 2 hours", False, []),
        (DRIVE, "drive fast 5 km in 2 hours, kilometers", False, ["fast", "kilometers"]),
        (SWITCHES, "list archived", False, []),
        (SWITCHES, "list loud and include", False, ["include"]),
        (CUPS, "list 5 cups of cups, meters", False, ["meters"]),
        (CUPS, "list cups", False, ["cups"]),
        (spec("list"), "list the best ones", False, []),
        (ToolSpec("list"), "list the best ones", False, ["best", "ones"]),
    ],
)  # fmt: skip
def test_words_that_nothing_accounts_for(
    tool: ToolSpec, question: str, has_bare_text: bool, unexplained: list[str]
) -> None:
    matcher = Matcher(MatchedTool(tool), Question(question))
    assert matcher.match()
    assert matcher.has_bare_text == has_bare_text
    assert [matcher.question.lowers[at] for at in matcher.unexplained()] == unexplained


def test_option_could_be_meant_unless_it_is_a_number_without_listed_values() -> None:
    assert parameter(type="string").could_be_meant
    assert parameter(type="integer", enum=[1, 2]).could_be_meant
    assert not parameter(type="integer").could_be_meant
    assert not parameter(type="number").could_be_meant


def test_generic_words_of_a_name_tell_a_parameter_only_if_there_are_no_others() -> None:
    heads = [prop.heads for prop in MatchedTool(spec("f", user_id=STRING, id=STRING, order_count=STRING)).parameters]
    assert heads == [["user"], ["id"], ["order"]]


def test_switch_is_a_boolean_or_a_text_that_is_true_or_false() -> None:
    assert parameter(type="boolean").is_switch
    assert parameter(enum=["True", "False"]).is_switch
    assert parameter(enum=["True", "False", "Auto"]).is_switch
    assert not parameter(enum=["True", "Auto"]).is_switch
    assert not parameter(type="string").is_switch


def test_type_of_several_is_the_first_and_of_all_is_any() -> None:
    assert parameter(type=["integer", "null"]).type == "integer"
    assert parameter().type == "any"
    assert parameter(type=["string", "null", "array", "object", "boolean", "number"]).type == "any"
    assert parameter(type=["null", "array", "object", "boolean", "number"]).type != "any"
    assert parameter(type="null").type == "any"
