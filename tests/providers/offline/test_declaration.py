"""What the offline model reads in a declaration."""

from midspan._types.specs import Effects, ToolSpec
from midspan.providers.offline.declaration import Parameter, Tool


def test_verbs_are_those_that_name_and_description_begin_with() -> None:
    assert Tool(ToolSpec("cancel_order", "Cancels an order.")).verbs == {"cancel"}
    assert Tool(ToolSpec("shop.order_item", "Buys an item.")).verbs == {"order", "buy"}
    assert Tool(ToolSpec("turn_off", "Turn off a lamp.")).verbs == {"turn off"}
    assert Tool(ToolSpec("x")).verbs == {"x"}


def test_only_a_tool_that_declares_reads_and_no_writes_is_read_only() -> None:
    assert Tool(ToolSpec("a", effects=Effects(reads=("x",)))).is_read_only
    assert not Tool(ToolSpec("a")).is_read_only
    assert not Tool(ToolSpec("a", effects=Effects(idempotent=True))).is_read_only
    assert not Tool(ToolSpec("a", effects=Effects(reads=("x",), writes=("x",)))).is_read_only


def test_kind_side_and_units_of_a_parameter_come_from_its_words() -> None:
    city = Parameter("to_city", {"type": "string"}, required=True)
    assert (city.kind, city.side) == ("place", "to")
    speed = Parameter("speed", {"type": "number", "description": "The speed in km."}, required=True)
    assert (speed.kind, speed.side, speed.units) == ("number", "", {"kilometer"})
    assert Parameter("when", {"type": "string"}, required=False).kind == "date"
    assert Parameter("note", {"type": "string", "description": "A URL."}, required=False).kind == "link"


def test_types_are_read_in_any_spelling() -> None:
    spellings = [{"type": "int"}, {"type": ["null", "integer"]}, {"anyOf": [{"type": "null"}, {"type": "Integer"}]}]
    assert [Parameter("a", schema, required=True).type for schema in spellings] == ["integer"] * 3
    assert Parameter("a", {}, required=True).type == "any"
