import asyncio
import copy
import datetime
import json
import pickle
import sys
import threading
from functools import partial, wraps
from typing import Any

import pytest

from midspan import Agent
from midspan._schema.signature import Context
from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects
from midspan.errors import ConfigError, SchemaError
from midspan.testing import ScriptedProvider
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import execute
from midspan.tools.function import Tool, tool, tool_of
from tests.bounds import BOUND

TAKES = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}
GIVES = {"type": "object", "properties": {"temp_c": {"type": "integer"}}, "required": ["temp_c"]}


def use(made: Tool[..., Any], context: Any = None, **arguments: Any) -> ToolResult:
    return asyncio.run(execute(made, ToolCall("1", made.name, arguments), RunContext(context)))


def test_decorated_function_is_a_tool_and_still_callable() -> None:
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


def test_options_of_the_decorator_are_in_the_spec() -> None:
    @tool(name="plus", description="Sums.", examples=[{"a": 1}], timeout=2, idempotent=True, repeatable=True)
    async def add(a: int) -> int:
        return a

    assert (add.spec.name, add.spec.description, add.spec.examples, add.timeout) == (
        "plus",
        "Sums.",
        ({"a": 1},),
        2,
    )
    assert add.spec.effects == Effects(idempotent=True)
    assert add.spec.repeatable
    assert (add.spec.final, tool_of(add.function).timeout) == (False, 30)


@pytest.mark.parametrize(("options", "is_error"), [({}, False), ({"check_formats": True}, True)])
def test_formats_are_checked_only_on_request(options: Any, is_error: bool) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}}
    made = tool_from_schema("send", "Sends.", schema, lambda arguments: 1, **options)
    assert use(made, to="nobody").is_error is is_error


@pytest.mark.requirement("S3-01", "S3-03")
def test_tool_from_schema_validates_arguments_and_response() -> None:
    def callback(arguments: dict[str, Any]) -> Any:
        return {"temp_c": 4} if arguments["city"] == "Oslo" else {"temp_c": "cold"}

    made = tool_from_schema("weather", "The weather.", json.dumps(TAKES).encode(), callback, response=json.dumps(GIVES))
    assert use(made, city="Oslo").value == {"temp_c": 4}
    short, wrong = use(made, city="X"), use(made, city="Rome")
    assert (short.is_error, wrong.is_error) == (True, True)
    assert short.value.startswith("invalid parameters: city: ")
    assert wrong.value.startswith("invalid response: temp_c: ")


@pytest.mark.requirement("S3-01")
def test_callback_of_a_schema_may_be_async_and_take_the_context() -> None:
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
        (5, None, "failed to create tool t: invalid parameters schema"),
        (TAKES, {"type": "object", "required": 5}, "failed to create tool t: invalid response"),
        (TAKES, "[", "failed to create tool t: invalid response schema"),
    ],
)
def test_invalid_schema_is_an_error_when_the_tool_is_created(parameters: Any, response: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        tool_from_schema("t", "T.", parameters, lambda arguments: arguments, response=response)


def test_schema_may_use_type_names_of_python() -> None:
    schema = {"type": "dict", "properties": {"n": {"type": "float"}, "type": {"type": "any"}}}
    made = tool_from_schema("t", "T.", schema, lambda arguments: arguments)
    assert made.spec.parameters == {"type": "object", "properties": {"n": {"type": "number"}, "type": {}}}


def test_callback_cannot_change_the_arguments_of_the_call() -> None:
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
        {"max_result_chars": None},
        {"check_formats": 1},
        {"max_result_chars": -1},
        {"final": final_later},
        {"final": 5},
        {"timeout": True},
        {"timeout": 10**400},
        {"max_result_chars": True},
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
        {"examples": [{"a": object()}]},
        {"examples": [{"a": "\ud800"}]},
    ],
)
def test_invalid_option_is_an_error_when_the_tool_is_created(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^add: .*{next(iter(options)).rstrip('s')}"):
        tool(**options)(lambda_named_add())


@pytest.mark.parametrize("name", ["", "half \ud800", "a\0b", "two\nlines", 5])
def test_name_must_be_printable_text(name: Any) -> None:
    with pytest.raises(ConfigError, match="name"):
        tool(name=name)(lambda_named_add())
    with pytest.raises(ConfigError, match="name"):
        tool_from_schema(name, "T.", TAKES, lambda arguments: arguments)


def test_description_must_be_text() -> None:
    with pytest.raises(ConfigError, match="the description of a tool must be a string, got 5"):
        tool(description=5)(lambda_named_add())  # type: ignore[call-overload]


def test_examples_must_be_a_list() -> None:
    with pytest.raises(ConfigError, match=r"add: invalid option examples=\{'a': 1\}: Expected `array`, got `object`"):
        tool(examples={"a": 1})(lambda_named_add())  # type: ignore[arg-type]


def test_examples_are_copied_as_json() -> None:
    def book(days: list[datetime.date]) -> None: ...

    given = {"days": [datetime.date(2026, 2, 3)]}
    made = tool(examples=[given])(book)
    given["days"].clear()
    assert made.spec.examples == ({"days": ["2026-02-03"]},)


@pytest.mark.parametrize("callback", [lambda: None, lambda a, b, c: None])
def test_callback_must_take_the_arguments(callback: Any) -> None:
    with pytest.raises(ConfigError, match="t: the callback must be a function of the arguments"):
        tool_from_schema("t", "T.", TAKES, callback)


def lambda_named_add() -> Any:
    def add(a: int) -> int:
        return a

    return add


def test_options_for_an_existing_tool_are_an_error() -> None:
    made = tool(lambda_named_add())
    with pytest.raises(ConfigError, match="is already a tool"):
        tool(name="other")(made)
    assert tool(made) is made


def test_final_function_sees_the_whole_result_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    @tool(final=lambda result: result["done"], max_result_chars=10)
    def work(done: bool) -> dict[str, Any]:
        return {"done": done, "text": "x" * 100} if done else {"text": "x"}

    assert work.spec.final
    assert use(work, done=True).is_final
    assert not use(work, done=False).is_final
    assert "final" in caplog.text


def test_context_parameter_is_hidden_from_the_model() -> None:
    @tool
    def who(greeting: str, context: Context[dict[str, str]]) -> str:
        return f"{greeting} {context['user']}"

    assert who.spec.parameters is not None
    assert list(who.spec.parameters["properties"]) == ["greeting"]
    assert use(who, {"user": "ann"}, greeting="hi").value == "hi ann"


def test_effects_may_have_placeholders_for_arguments() -> None:
    @tool(reads="rates", writes=("account:{source}", "account:{target}"))
    def transfer(source: str, target: str) -> None: ...

    assert transfer.spec.effects == Effects(("rates",), ("account:{source}", "account:{target}"))


def test_tool_that_writes_cannot_be_read_only() -> None:
    with pytest.raises(ConfigError, match=r"add: read_only contradicts writes=\('a',\)"):
        tool(read_only=True, writes="a")(lambda_named_add())


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("account:{sauce}", "name 'sauce', but the parameters are: source"),
        ("", "is not valid"),
        ("a{", "is not valid"),
        ("}", "is not valid"),
    ],
)
def test_invalid_effect_is_an_error(template: str, words: str) -> None:
    def transfer(source: str) -> None: ...

    with pytest.raises(SchemaError, match=words):
        tool(writes=template)(transfer)


def test_example_with_invalid_arguments_is_an_error() -> None:
    def add(a: int) -> int:
        return a

    with pytest.raises(SchemaError, match="failed to create tool add: the example"):
        tool(examples=[{"a": "many"}])(add)


def test_result_of_a_final_tool_is_final() -> None:
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


def test_callable_object_and_partial_function_are_tools() -> None:
    class Scale:
        """Multiply."""

        def __call__(self, number: int) -> int:
            return 3 * number

    def scale(factor: int, number: int) -> int:
        """Multiply."""
        return factor * number

    for function in (Scale(), partial(scale, 3)):
        multiply = tool(name="multiply")(function)
        assert list((multiply.spec.parameters or {})["properties"]) == ["number"]
        assert asyncio.run(execute(multiply, ToolCall("1", "multiply", {"number": 2}))).value == 6


def calls(*names_and_arguments: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(str(n), name, arguments) for n, (name, arguments) in enumerate(names_and_arguments)]


def test_decorated_methods_are_tools_of_their_objects() -> None:
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


def test_parameter_named_cls_does_not_make_a_function_a_method() -> None:
    @tool
    def enrol(cls: str) -> str:
        """Enrol in a class."""
        return cls

    assert isinstance(enrol, Tool)
    assert "cls" in (enrol.spec.parameters or {})["properties"]


def test_method_may_have_other_decorators_below() -> None:
    def doubled(function: Any) -> Any:
        @wraps(function)
        def wrapper(*args: Any, **keywords: Any) -> Any:
            return 2 * function(*args, **keywords)

        return wrapper

    class Stall:
        price = 3

        @tool
        @doubled
        def cost(self, pieces: int) -> int:
            """What some pieces cost."""
            return self.price * pieces

    cost = tool_of(Stall().cost)
    assert list((cost.spec.parameters or {})["properties"]) == ["pieces"]
    assert use(cost, pieces=2).value == 12


def test_decorated_method_is_still_callable() -> None:
    shop = Shop(3)
    assert shop.price("tea") == 3
    assert Shop.price(shop, "tea") == 3
    assert asyncio.run(shop.buy("tea")) == "tea for 3"
    assert Shop.motto(loudly=True) == "SHOP"


def test_tool_of_a_method_has_its_options_and_schema() -> None:
    made = Shop(3).buy
    assert isinstance(made, Tool)
    assert (made.name, made.timeout) == ("buy_item", 5)
    assert list(Shop(3).price.spec.parameters["properties"]) == ["item"]
    assert Shop(3).price.spec.description == "What an item costs."


def test_method_without_its_object_is_an_error() -> None:
    with pytest.raises(SchemaError, match="price is an unbound method; pass the method of an instance"):
        Agent(ScriptedProvider(["x"]), tools=[Shop.price])


def look_at_tools(shop: Shop) -> None:
    assert [tool_of(method).name for method in (shop.price, shop.buy, shop.motto, shop.hours)]


def test_tool_of_a_copied_object_acts_on_the_copy() -> None:
    shop = Shop(1)
    look_at_tools(shop)
    for duplicate in (copy.copy, copy.deepcopy, lambda shop: pickle.loads(pickle.dumps(shop))):
        other = duplicate(shop)
        other._price = 99
        assert (use(other.price, item="tea").value, use(shop.price, item="tea").value) == (99, 1)
        assert use(other.buy, item="tea").value == "tea for 99"


def test_looking_at_a_tool_stores_nothing_in_the_object() -> None:
    shop = Shop(1)
    look_at_tools(shop)
    assert vars(shop) == {"_price": 1}


def test_threads_that_look_at_a_method_first_all_get_the_tool() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):

            class Stand:
                @tool(name="sell_item")
                def sell(self, item: str) -> str: ...

                @classmethod
                @tool
                def motto(cls) -> str: ...

            together = threading.Barrier(2)
            tools: list[Any] = []

            def look(stand: Any, together: threading.Barrier = together, tools: list[Any] = tools) -> None:
                together.wait(BOUND)
                tools.extend((tool_of(stand.sell), tool_of(stand.motto)))

            threads = [threading.Thread(target=look, args=(Stand(),)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(BOUND)
            assert sorted(made.name for made in tools) == ["motto", "motto", "sell_item", "sell_item"]
    finally:
        sys.setswitchinterval(interval)


def test_schemas_of_a_method_are_made_once_for_all_objects() -> None:
    assert Shop(1).price.spec is Shop(2).price.spec
    assert Shop(1).price.parameters is Kiosk(2).price.parameters


def test_objects_with_slots_have_tools_too() -> None:
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
