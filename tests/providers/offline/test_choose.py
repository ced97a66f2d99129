"""Which calls the offline model chooses, and when it chooses none."""

import pytest

from midspan.providers.offline.choose import choose_calls
from midspan.toolsets import ready_tools
from tests.providers.offline import sample_tools as tools
from tests.providers.offline.sample_tools import call, reading, writing

PAIRS = {
    "order": (
        (tools.order_item, tools.cancel_order),
        [
            "Order 3 lamps",
            "Please order 12 chairs.",
            "Could you order 2 desks?",
            "I'd like to order 5 mugs",
            "order 4 'pen'",
        ],
        [
            "Cancel order 7",
            "Please cancel order 31.",
            "Can you cancel order #8?",
            "I want to cancel order 4",
            "cancel the order 9",
        ],
    ),
    "add": (
        (tools.add_item, tools.remove_item),
        [
            "Add milk",
            "Add milk to the shopping list",
            "Please add 'oat milk' to my list",
            "Could you add eggs to the list?",
        ],
        [
            "Remove milk",
            "Remove bread from the shopping list",
            "Please remove 'green tea' from the list",
            "I need to remove eggs",
        ],
    ),
    "open": (
        (tools.open_valve, tools.close_valve),
        ["Open valve 3", "Please open valve 12", "Can you open valve 4?", "open the valve with id 5"],
        ["Close valve 3", "Please close valve 12.", "Could you close valve 4?", "I want you to close valve 7"],
    ),
    "lock": (
        (tools.lock_door, tools.unlock_door),
        [
            "Lock the front door",
            "Please lock the garage door",
            "Can you lock door 'B'?",
            "lock the back door of the house",
        ],
        [
            "Unlock the front door",
            "Please unlock the garage door",
            "Can you unlock door 'B'?",
            "Just unlock the cellar door",
        ],
    ),
    "start": (
        (tools.start_server, tools.stop_server),
        [
            "Start server web-1",
            "Please start the server db2",
            "Could you start the 'mail' server?",
            "Start the web server",
        ],
        [
            "Stop server web-1",
            "Please stop the server db2",
            "Could you stop the 'mail' server?",
            "Stop the web server",
        ],
    ),
    "buy": (
        (tools.buy_shares, tools.sell_shares),
        ["Buy 10 shares of ACME", "Please buy 3 shares of 'XYZ'", "Can you buy 25 shares of ABC?", "Buy 7 ACME"],
        ["Sell 10 shares of ACME", "Please sell 3 shares of 'XYZ'", "Can you sell 25 shares of ABC?", "Sell 7 ACME"],
    ),
    "enable": (
        (tools.enable_feature, tools.disable_feature),
        [
            "Enable notifications",
            "Please enable the feature 'search'",
            "Enable the export feature",
            "Could you enable beta_ui?",
        ],
        [
            "Disable notifications",
            "Please disable the feature 'search'",
            "Disable the export feature",
            "Could you disable beta_ui?",
        ],
    ),
    "send": (
        (tools.send_message, tools.delete_message),
        ["Send 'hello' to Anna", "Please send 'on my way' to Bob", "Send the text 'done' to Carla"],
        ["Delete message 5", "Please delete message 17.", "Can you delete message 3?", "delete the message with id 8"],
    ),
    "turn on": (
        (tools.turn_on_light, tools.turn_off_light),
        ["Turn on the light in the kitchen", "Turn the kitchen light on", "Please turn on the hall light"],
        ["Turn off the light in the kitchen", "Turn the kitchen light off", "Please turn off the hall light"],
    ),
}

SHAPES = [
    "Don't {verb} {rest}",
    "Do not {verb} {rest}",
    "Never {verb} {rest}",
    "Refuse to {verb} {rest}",
    "Un{verb} {rest}",
    "How would I {verb} {rest}?",
    "Should we {verb} {rest}?",
    "What happens if I {verb} {rest}?",
    "Re{verb} {rest}",
    "My boss told me to {verb} {rest}",
    "Remind me tomorrow to {verb} {rest}",
    "Translate '{verb} {rest}' into French",
    "Instead of asking, {verb} {rest} or wait",
    "{verb} {rest} if it rains",
    "Who may {verb} {rest}?",
    "Stop {verb}ing {rest}",
    "We must avoid that scripts {verb} {rest}",
    "I did not {verb} {rest}",
    "Explain why you {verb} {rest}",
    "{verb} {rest}? No!",
    "Before you {verb} {rest}, ask me",
    "It was wrong to {verb} {rest}",
    "Undo: {verb} {rest}",
    "Tell Bob to {verb} {rest}",
    "Would it be bad to {verb} {rest}?",
    "The button to {verb} {rest} is broken",
]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("side", [0, 1])
def test_plain_command_calls_its_tool(name: str, side: int) -> None:
    functions, *commands = PAIRS[name]
    for question in commands[side]:
        found = call(question, writing(*functions))
        assert found is not None, question
        assert found[0] == functions[side].__name__, question


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("side", [0, 1])
def test_command_never_calls_the_opposite_tool_when_only_that_one_is_offered(name: str, side: int) -> None:
    functions, *commands = PAIRS[name]
    for question in commands[side]:
        assert call(question, writing(functions[1 - side])) is None, question


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "turn on"])
@pytest.mark.parametrize("side", [0, 1])
def test_sentence_that_only_speaks_of_an_action_calls_nothing(name: str, side: int) -> None:
    functions, *commands = PAIRS[name]
    verb, _, rest = commands[side][0].lower().partition(" ")
    for shape in SHAPES:
        question = shape.format(verb=verb, rest=rest)
        assert call(question, writing(functions[side])) is None, question
        if not question.startswith("Unlock"):  # which is a command of the pair
            assert call(question, writing(*functions)) is None, question


@pytest.mark.parametrize(
    "question",
    [
        "Refuse to delete user 2",
        "Undelete user 2",
        "Delete user 2 and user 3",
        "Delete users 2 to 5",
        "Delete all users",
        "Delete 2",
        "Delete 2 users",
        "Delete every user but 2",
        "Delete user 2 tomorrow",
        "Delete user 2? I am not sure.",
        "It would be a disaster to delete user 2",
        "Who has the right to delete user 2?",
        "Delete user",
        "delete",
        "Translate 'delete user 2' into German",
        "Delete user 2 from the backup",
        "To delete user 2 is a crime",
    ],
)
def test_user_is_deleted_only_by_a_plain_command(question: str) -> None:
    assert call(question, writing(tools.delete_user)) is None


def test_two_tools_with_the_verb_of_the_command_are_never_called() -> None:
    both = writing(tools.delete_user, tools.delete_message)
    assert call("Delete user 2", writing(tools.delete_user)) == ("delete_user", {"user_id": 2})
    assert call("Delete user 2", both) is None


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("Order 3 lamps", {"item": "lamp", "quantity": 3}),
        ("Order twelve boxes", {"item": "box", "quantity": 12}),
        ("Order 2 'desk lamps'", {"item": "desk lamps", "quantity": 2}),
        ("Order 5 garden chairs", {"item": "garden chair", "quantity": 5}),
        ("Order lamps", None),
        ("Order 3 lamps and 4 chairs", None),
        ("Order 3 or 4 lamps", None),
        ("Order 3 more lamps", None),
        ("Cancel 3 orders", None),
        ("Cancel my order for 3 lamps", None),
        ("Sell me 3 lamps", None),
    ],
)
def test_order_takes_every_value_of_the_question_or_is_not_made(question: str, arguments: dict[str, object]) -> None:
    found = call(question, writing(tools.order_item, tools.cancel_order))
    assert found == (None if arguments is None else ("order_item", arguments))


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("Convert 100 fahrenheit to celsius", (100, "fahrenheit", "celsius")),
        ("Convert 100 degrees celsius into kelvin", (100, "celsius", "kelvin")),
        ("Please convert 12.5 from kelvin to fahrenheit", (12.5, "kelvin", "fahrenheit")),
        ("Convert 100 fahrenheit", None),
        ("Convert 100 with celsius and fahrenheit", None),
        ("Convert 100 from celsius from kelvin", None),
    ],
)
def test_parameters_with_the_same_values_are_distinguished_by_the_words_before(
    question: str, arguments: tuple[float, str, str] | None
) -> None:
    names = ("value", "from_unit", "to_unit")
    expected = None if arguments is None else ("convert_temperature", dict(zip(names, arguments, strict=True)))
    assert call(question, reading(tools.convert_temperature)) == expected


def test_question_calls_a_read_only_tool_but_not_one_that_declares_nothing() -> None:
    question = "What is the weather in Oslo?"
    assert call(question, reading(tools.get_weather)) == ("get_weather", {"city": "Oslo"})
    assert call(question, writing(tools.get_weather)) is None
    assert call("Get the weather in Oslo.", writing(tools.get_weather)) == ("get_weather", {"city": "Oslo"})


def test_question_calls_the_read_only_tool_that_it_describes() -> None:
    offered = reading(tools.stock_level)
    assert call("How many lamps are in stock?", offered) == ("stock_level", {"item": "lamp"})
    assert call("How many of the item 'lamp' are in stock?", offered) == ("stock_level", {"item": "lamp"})
    assert call("How many lamps and chairs are in stock?", offered) is None
    assert call("How many lamps are broken?", offered) is None


@pytest.mark.parametrize(
    "question",
    [
        "Who wrote Hamlet?",
        "What is the weather?",
        "What is the weather in Oslo and Bergen?",
        "Is Oslo nice?",
        "",
        "What is the weather not like in Oslo?",
        "Delete the weather in Oslo",
        "How is Anna in Oslo?",
        "hello",
        "?",
    ],
)
def test_read_only_tool_is_not_called_where_the_question_does_not_ask_for_it(question: str) -> None:
    assert call(question, reading(tools.get_weather, tools.stock_level, tools.triangle_area)) is None


def test_clauses_that_each_ask_for_one_read_only_call_make_one_call_each() -> None:
    offered = reading(tools.get_weather, tools.stock_level)
    question = "What is the weather in Oslo, and how many chairs are in stock?"
    assert choose_calls(question, offered) == [("get_weather", {"city": "Oslo"}), ("stock_level", {"item": "chair"})]
    assert choose_calls("What is the weather in Oslo, and how is Anna?", offered) == []


def test_clauses_that_ask_for_the_same_tool_make_no_call() -> None:
    question = "What is the weather in Oslo? What is the weather in Bergen?"
    assert choose_calls(question, reading(tools.get_weather, tools.stock_level)) == []


def test_tools_of_which_neither_fits_better_are_not_called() -> None:
    def get_weather_now(city: str) -> str:
        """The weather in a city."""
        return city

    assert call("What is the weather in Oslo?", reading(tools.get_weather, get_weather_now)) is None


def test_number_that_measures_or_counts_is_not_an_id() -> None:
    def stop_timer(timer_id: int) -> None:
        """Stop a timer."""

    assert call("Stop timer 5", writing(stop_timer)) == ("stop_timer", {"timer_id": 5})
    assert call("Stop the 5 minute timer", writing(stop_timer)) is None
    assert call("Stop 5 timers", writing(stop_timer)) is None


def test_email_address_is_the_recipient_and_not_an_id() -> None:
    def send_email(to: str, subject: str) -> None:
        """Send an email."""

    def delete_email(email_id: str) -> None:
        """Delete an email."""

    offered = writing(send_email, delete_email)
    arguments = {"to": "bob@example.com", "subject": "Hi"}
    assert call("Send an email to bob@example.com with the subject 'Hi'", offered) == ("send_email", arguments)
    assert call("Delete the email to bob@example.com", offered) is None
    assert call("Delete email E-5", offered) == ("delete_email", {"email_id": "E-5"})


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        (
            "What is 17.5% of 2480, and what time is it in Tokyo?",
            [("calculate", {"expression": "17.5% of 2480"}), ("get_time", {"zone": "Tokyo"})],
        ),
        ("How much is 3 plus 4?", [("calculate", {"expression": "3 + 4"})]),
        ("What's the weather in Oslo?", [("get_weather", {"location": "Oslo"})]),
        ("What time is sunset in Tokyo?", []),
        ("I love the weather in Oslo", []),
        ("where is it?", []),
    ],
)
def test_questions_to_the_ready_tools(question: str, calls: list[tuple[str, dict[str, object]]]) -> None:
    chosen = choose_calls(question, [tool.spec for tool in ready_tools()])
    assert sorted(chosen, key=lambda call: call[0]) == calls


def test_question_with_words_that_the_call_does_not_account_for_calls_nothing() -> None:
    offered = reading(tools.get_weather, tools.stock_level)
    for question in ("Tell me a joke about the weather in Oslo", "How many lamps in stock are broken?"):
        assert call(question, offered) is None, question
