import asyncio
import datetime
import json
from typing import Any

import pytest

from midspan import Agent
from midspan._schema.signature import Context
from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects
from midspan.errors import ConfigError, SchemaError
from midspan.testing import ScriptedProvider
from midspan.tools.execute import execute
from midspan.tools.function import Tool, tool, tool_from_schema

TAKES = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}
GIVES = {"type": "object", "properties": {"temp_c": {"type": "integer"}}, "required": ["temp_c"]}


def use(made: Tool[..., Any], context: Any = None, **arguments: Any) -> ToolResult:
    return asyncio.run(execute(made, ToolCall("1", made.name, arguments), RunContext(context)))


def test_a_decorated_function_is_a_tool_and_still_a_function() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    assert add(2, b=3) == 5
    assert (add.name, add.spec.description) == ("add", "Adds.")
    assert add.spec.parameters is not None
    assert add.spec.parameters["required"] == ["a"]
    assert add.spec.response == {"type": "integer"}
    assert use(add, a=2) == ToolResult("1", "add", 3, notes=use(add, a=2).notes)


def test_options_are_taken_from_the_decorator() -> None:
    @tool(name="plus", description="Sums.", examples=[{"a": 1}], timeout=2, idempotent=True)
    async def add(a: int) -> int:
        return a

    assert (add.spec.name, add.spec.description, add.spec.examples, add.timeout) == ("plus", "Sums.", ({"a": 1},), 2)
    assert add.spec.effects == Effects(idempotent=True)


@pytest.mark.requirement("S3-01", "S3-03")
def test_an_explicit_tool_validates_what_goes_in_and_what_comes_out() -> None:
    def callback(arguments: dict[str, Any]) -> Any:
        return {"temp_c": 4} if arguments["city"] == "Oslo" else {"temp_c": "cold"}

    made = tool_from_schema("weather", "The weather.", json.dumps(TAKES).encode(), callback, response=json.dumps(GIVES))
    assert use(made, city="Oslo").value == {"temp_c": 4}
    short, wrong = use(made, city="X"), use(made, city="Rome")
    assert (short.is_error, wrong.is_error) == (True, True)
    assert short.value.startswith("invalid parameters: city: ")
    assert wrong.value.startswith("invalid response: temp_c: ")


@pytest.mark.requirement("S3-01")
def test_an_explicit_callback_may_be_async_and_may_take_the_context() -> None:
    async def callback(context: Any, arguments: dict[str, Any]) -> Any:
        return {"user": context, **arguments}

    assert use(tool_from_schema("who", "Who.", TAKES, callback), "ann", city="Oslo").value == {
        "user": "ann",
        "city": "Oslo",
    }


@pytest.mark.requirement("S3-02")
@pytest.mark.parametrize(
    ("parameters", "response", "words"),
    [
        (
            {"type": "object", "properties": {"a": {"minLength": "x"}}},
            None,
            "failed to create tool t: invalid parameters",
        ),
        (b"{", None, "failed to create tool t: invalid parameters schema"),
        (TAKES, {"type": "object", "required": 5}, "failed to create tool t: invalid response"),
        (TAKES, "[", "failed to create tool t: invalid response schema"),
    ],
)
def test_an_invalid_schema_is_an_error_when_the_tool_is_made(parameters: Any, response: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        tool_from_schema("t", "T.", parameters, lambda arguments: arguments, response=response)


def test_an_explicit_schema_may_use_type_words_of_python() -> None:
    schema = {"type": "dict", "properties": {"n": {"type": "float"}, "type": {"type": "any"}}}
    made = tool_from_schema("t", "T.", schema, lambda arguments: arguments)
    assert made.spec.parameters == {"type": "object", "properties": {"n": {"type": "number"}, "type": {}}}


def test_a_callback_cannot_change_the_call() -> None:
    made = tool_from_schema("t", "T.", {"type": "object"}, lambda arguments: arguments["x"].append(1))
    call = ToolCall("1", "t", {"x": []})
    asyncio.run(execute(made, call))
    assert call.arguments == {"x": []}


async def final_later(_result: Any) -> bool:
    return False


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": -1},
        {"timeout": "5"},
        {"timeout": float("nan")},
        {"max_result_chars": None},
        {"max_result_chars": -1},
        {"final": "yes"},
        {"final": lambda: True},
        {"final": final_later},
        {"timeout": True},
        {"timeout": 10**400},
        {"max_result_chars": True},
        {"description": 5},
        {"description": "half \ud800"},
        {"idempotent": "x"},
        {"repeatable": "x"},
        {"repeatable": 1},
        {"reads": 5},
        {"reads": [5]},
        {"reads": {"a": 1}},
        {"writes": None},
        {"writes": b"account"},
        {"examples": 5},
        {"examples": None},
        {"examples": [5]},
        {"examples": [{"a": float("nan")}]},
        {"examples": [{"a": object()}]},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_the_tool_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^add: .*{next(iter(options)).rstrip('s')}|^add: 5 is no name of a thing"):
        tool(**options)(lambda_named_add())


@pytest.mark.parametrize("name", [5, "", "half \ud800"])
def test_a_name_that_no_model_could_say_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="name"):
        tool(name=name)(lambda_named_add())
    with pytest.raises(ConfigError, match="name"):
        tool_from_schema(name, "T.", TAKES, lambda arguments: arguments)


def test_examples_that_are_no_list_are_not_taken_for_a_wrong_example() -> None:
    with pytest.raises(SchemaError, match=r"add: examples are a list of dicts.*; not \{'a': 1\}"):
        tool(examples={"a": 1})(lambda_named_add())  # type: ignore[arg-type]


def test_a_declaration_keeps_its_examples_as_json_whatever_becomes_of_those_given() -> None:
    def book(days: list[datetime.date]) -> None: ...

    given = {"days": [datetime.date(2026, 2, 3)]}
    made = tool(examples=[given])(book)
    given["days"].clear()
    assert made.spec.examples == ({"days": ["2026-02-03"]},)


@pytest.mark.parametrize(
    ("description", "parameters", "callback", "words"),
    [
        (5, TAKES, use, "t: description is a text, not 5"),
        (None, TAKES, use, "t: description is a text, not None"),
        ("T.", 5, use, "failed to create tool t: invalid parameters schema: it is a dict, or JSON as text; not 5"),
        ("T.", TAKES, 5, "t: the callback is a function of the arguments"),
        ("T.", TAKES, lambda: None, "t: the callback is a function of the arguments"),
        ("T.", TAKES, lambda a, b, c: None, "t: the callback is a function of the arguments"),
    ],
)
def test_an_explicit_tool_that_could_never_be_called_is_not_made(
    description: Any, parameters: Any, callback: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        tool_from_schema("t", description, parameters, callback)


@pytest.mark.parametrize("properties", [5, {5: {}}])
def test_a_hole_in_a_schema_of_no_use_is_still_told_in_a_sentence(properties: Any) -> None:
    with pytest.raises(SchemaError, match="but the parameters are: none"):
        tool_from_schema("t", "T.", {"properties": properties}, use, reads="account:{id}")


def test_a_tool_is_made_of_a_spec() -> None:
    with pytest.raises(ConfigError, match="made of a ToolSpec, not of 5"):
        Tool(5, use, use, is_async=False)  # type: ignore[arg-type]


def lambda_named_add() -> Any:
    def add(a: int) -> int:
        return a

    return add


def test_options_for_what_is_a_tool_already_are_refused() -> None:
    made = tool(lambda_named_add())
    with pytest.raises(ConfigError, match="is a tool already"):
        tool(name="other")(made)
    assert tool(made) is made


def test_an_example_that_cannot_become_a_value_is_refused() -> None:
    def book(day: datetime.date) -> None: ...

    with pytest.raises(SchemaError, match="no valid call"):
        tool(examples=[{"day": "2026-02-31"}])(book)


def test_a_final_predicate_sees_the_whole_result_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    @tool(final=lambda result: result["done"], max_result_chars=10)
    def work(done: bool) -> dict[str, Any]:
        return {"done": done, "text": "x" * 100} if done else {"text": "x"}

    assert use(work, done=True).is_final
    assert not use(work, done=False).is_final
    assert "final" in caplog.text


def test_the_context_is_given_past_the_model() -> None:
    @tool
    def who(greeting: str, context: Context[dict[str, str]]) -> str:
        return f"{greeting} {context['user']}"

    assert who.spec.parameters is not None
    assert list(who.spec.parameters["properties"]) == ["greeting"]
    assert use(who, {"user": "ann"}, greeting="hi").value == "hi ann"


def test_effects_are_declared_with_holes_for_arguments() -> None:
    @tool(reads="rates", writes=("account:{source}", "account:{target}"))
    def transfer(source: str, target: str) -> None: ...

    assert transfer.spec.effects == Effects(("rates",), ("account:{source}", "account:{target}"))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("account:{sauce}", "hole for 'sauce', but the parameters are: source"),
        ("", "no name"),
        ("a{", "no name"),
        ("}", "no name"),
    ],
)
def test_a_template_that_fits_no_parameter_is_refused(template: str, words: str) -> None:
    def transfer(source: str) -> None: ...

    with pytest.raises(SchemaError, match=words):
        tool(writes=template)(transfer)


def test_an_example_that_is_no_call_is_refused() -> None:
    def add(a: int) -> int:
        return a

    with pytest.raises(SchemaError, match="failed to create tool add: the example"):
        tool(examples=[{"a": "many"}])(add)


def test_a_final_tool_says_so_with_its_result() -> None:
    @tool(final=True)
    def done() -> str:
        return "x"

    @tool(final=lambda result: result["ok"])
    def maybe(ok: bool) -> dict[str, bool]:
        return {"ok": ok}

    assert use(done).is_final
    assert use(maybe, ok=True).is_final
    assert not use(maybe, ok=False).is_final
    assert not use(maybe, ok="perhaps").is_final


class Shop:
    """Sells one thing."""

    def __init__(self, price: int) -> None:
        self._price = price

    @tool
    def price(self, item: str) -> int:
        """What an item costs."""
        return self._price

    @tool(name="buy_item", timeout=5)
    async def buy(self, item: str) -> str:
        await asyncio.sleep(0)
        return f"{item} for {self._price}"

    @classmethod
    @tool
    def motto(cls, loudly: bool = False) -> str:
        return cls.__name__.upper() if loudly else cls.__name__

    @staticmethod
    @tool
    def hours(day: str) -> str:
        return f"{day}: 9 to 5"


class Kiosk(Shop):
    """Has the same tools."""

    __slots__ = ()


def calls(*names_and_arguments: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(str(n), name, arguments) for n, (name, arguments) in enumerate(names_and_arguments)]


def test_methods_are_tools_of_their_objects() -> None:
    cheap, dear = Shop(1), Kiosk(9)
    for shop, price in ((cheap, 1), (dear, 9), (cheap, 1)):
        script = [
            calls(
                ("price", {"item": "tea"}),
                ("buy_item", {"item": "tea"}),
                ("motto", {"loudly": True}),
                ("hours", {"day": "Mon"}),
            ),
            "done",
        ]
        agent = Agent(ScriptedProvider(script), tools=[shop.price, shop.buy, shop.motto, shop.hours])
        values = [one.value for one in agent.run_sync("?").tool_calls]
        assert values == [price, f"tea for {price}", type(shop).__name__.upper(), "Mon: 9 to 5"]


def test_a_method_that_is_a_tool_can_be_called_as_the_method_it_is() -> None:
    shop = Shop(3)
    assert shop.price("tea") == 3
    assert Shop.price(shop, "tea") == 3
    assert asyncio.run(shop.buy("tea")) == "tea for 3"
    assert Shop.motto(loudly=True) == "SHOP"
    assert shop.price is shop.price


def test_it_has_the_options_and_the_schema_of_the_method() -> None:
    made = Shop(3).buy
    assert isinstance(made, Tool)
    assert (made.name, made.timeout) == ("buy_item", 5)
    assert list(Shop(3).price.spec.parameters["properties"]) == ["item"]
    assert Shop(3).price.spec.description == "What an item costs."


def test_without_its_object_it_is_no_tool() -> None:
    with pytest.raises(SchemaError, match="price is a method without its object; give the method of an object"):
        Agent(ScriptedProvider(["x"]), tools=[Shop.price])


def test_objects_that_keep_nothing_have_tools_too() -> None:
    class Bare:
        __slots__ = ("n",)

        def __init__(self, n: int) -> None:
            self.n = n

        @tool
        def number(self) -> int:
            return self.n

    assert Bare(4).number() == 4
    assert [
        Agent(ScriptedProvider([ToolCall("1", "number", {}), "x"]), [Bare(n).number]).run_sync("?").tool_calls[0].value
        for n in (1, 2)
    ] == [1, 2]
