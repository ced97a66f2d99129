"""Commands that a tool which may change something must not follow, and the plain ones that it follows."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from midspan._types.specs import ToolSpec
from midspan.providers.offline import choose
from tests.providers.offline import sample_tools as tools
from tests.providers.offline.sample_tools import call, writing


def delete_file(path: str) -> None:
    """Delete a file."""


def delete_named_user(name: str) -> None:
    """Delete a user."""


def delete_project(name: str) -> None:
    """Delete a project."""


def turn_on_light(room: str) -> None:
    """Turn a light on in a room."""


def lock(door: str) -> None:
    """Lock a door."""


def turn_on(device: str) -> None:
    """Switch a device on."""


def set_volume(level: int) -> None:
    """Set the volume."""


def set_temperature(value: float) -> None:
    """Set the temperature."""


def set_price(price: float) -> None:
    """Set the price."""


def order(item: str) -> None:
    """Order an item."""


def cancel(item: str) -> None:
    """Cancel an item."""


def grant_access(user: str) -> None:
    """Grant a user access."""


def send_email(to: str, body: str) -> None:
    """Send an email."""


def send_short_email(to: str) -> None:
    """Send an email."""


def start_engine() -> None:
    """Start the engine."""


def list_lamps() -> None:
    """List something."""


def open_ticket(ticket_id: int) -> None:
    """Open a support ticket."""


def buy_share(symbol: str, quantity: int) -> None:
    """Buy a share of a company."""


def set_timer(minutes: int, volume: int = 5) -> None:
    """Set a timer."""


def copy_file(source: str, destination: str) -> None:
    """Copy a file."""


def set_mode(mode: Literal["eco_plus", "boost"]) -> None:
    """Set the mode."""


QUIET: dict[tuple[Callable[..., Any], ...], list[str]] = {
    (delete_file,): [
        "Delete a.txt", "Delete *.txt", "Delete .env", "Delete ~/notes", "Delete a b", "Delete old files",
        "Delete users", "Delete the whole project", "Delete all", "Delete the file permissions", "Delete 'a'b",
    ],
    (delete_named_user,): ["Delete users", "Delete old users", "Delete user accounts", "Delete the user history"],
    (delete_project,): ["Delete the whole project", "Delete projects", "Delete the old project"],
    (tools.delete_user,): [
        "Delete the search results of user 5", "Delete user 5 would be good", "Delete the data of user 5",
        "Would you delete user 5?", "Will you delete user 5?", "Did you delete user 5?", "Is user 5 deleted?",
        "Delete user 5%", "Delete user 5k", "Delete user minus 5", "Delete users 5", "Delete user over 5",
    ],
    (turn_on_light,): [
        "Turn the light in the kitchen off", "Turn the light out in the kitchen", "Turn the kitchen lights out",
        "Turn the kitchen light down", "Turn the kitchen light over", "Turn the kitchen light",
    ],
    (turn_on_light, tools.turn_off_light): ["Turn the light out in the kitchen", "Turn the kitchen lights out"],
    (lock,): ["Lock Bob out", "Lock Bob up", "Lock Bob away", "Lock Bob in"],
    (turn_on,): ["switch 'lamp' over", "switch 'lamp' back", "switch 'lamp' off", "switch 'lamp'"],
    (set_volume,): [
        f"Set the volume {amount}" for amount in (
            "to minus 5", "to negative 5", "up by 5", "up 5", "over 5", "to over 5", "under 5", "to under 5", "up to 5",
            "from 5", "in 5 minutes", "to 5 in 5 minutes", "to 1.5k", "to 5k", "to 10%", "to 100 cents", "to 100 yen",
            "5 times", "to 100 times", "to two dozen", "to a dozen", "to 2 hundred", "to +5", "to $5", "down 5", "by 5",
        )
    ],
    (set_mode,): ["Set mode boosting", "Set the mode boosts", "Set the mode to boost"],
    (set_temperature,): ["Set the temperature up 2 degrees", "Set the temperature to minus 5"],
    (set_price,): ["Set the price to 100 cents", "Set the price to 100 yen", "Set the price to 10%"],
    (tools.order_item,): [
        "Order two dozen lamps", "Order a dozen lamps", "Order 100 times", "Order 1.5k lamps", "Order 12 is late",
        "Order 12 late", "Order 12 broke", "Order 10% lamps", "Order 2 hundred lamps", "Order 3 lamps next week",
        "Order minus 5 lamps", "Order over 5 lamps", "Order up to 5 lamps", "Order 3 lamps stop", "Order 3 lamps wait",
        "Order 5 lamp", "Order 1 lamps",
    ],
    (tools.order_item, tools.cancel_order): ["Order 12 is late", "Order 12 cancelled", "Order 12 cancels", "Order 12"],
    (order,): [
        f"Order {rest}" for rest in (
            "lamps cancel that", "lamps dont do it", "lamps stop", "lamps wait", "lamps next week", "12 is late",
            "cancelled", "status", "history", "arrived", "to cancel", "Status", "a dozen lamps", "two dozen lamps",
            "lamps",
        )
    ],
    (order, cancel): ["Order cancelled", "Order cancels", "Order cancelling", "Order lamps cancel", "Order to cancel"],
    (grant_access,): ["Grant Bob read access", "Grant read access", "Grant access to all"],
    (send_email,): [
        "Send an email from bob@x.com 'hi'", "Send an email 'hi' from bob@x.com",
        "Send an email to bob@x.com in the body 'hi'", "Send an email to bob@x.com with the hat 'hi'",
    ],
    (send_short_email,): ["Send an email from bob@x.com", "Send the email of bob@x.com"],
    (tools.stock_level,): [
        "How many lamps are in stock?", "What is the stock level of 'lamp'?", "Which lamps are in stock?",
        "Are lamps in stock?", "Should lamps be in stock?", "Who has 'lamp' in stock?",
    ],
    (tools.add_item,): [
        'Add "milk"list', "Add baked", "Add the red garden lamps", "Add the lamps garden", "Add the meter", "Add the x",
        "Add a lamp", "Add the lamp my list", "Add garden lamp", "Add list eggs", "Add up", "Add milk up",
    ],
    (tools.add_item, list_lamps): ["Add lamps"],
    (open_ticket,): ["Open the number 7", "Open number ticket 7", "Open ticket number"],
    (set_timer,): ["Set the timer to 5 hours", "Set a timer for 5 minutes", "Set a timer of 5 minutes"],
    (copy_file,): ["Copy 'a' for 'b'", "Copy the file from the destination 'a' to the source 'b'"],
    (start_engine,): ["Start the engine later", "Start the engines", "Start up", "Should I start the engine?"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("functions", "question"),
    [(functions, question) for functions, questions in QUIET.items() for question in questions],
)
def test_command_with_another_reading_calls_nothing(functions: tuple[Callable[..., Any], ...], question: str) -> None:
    assert call(question, writing(*functions)) is None


@pytest.mark.parametrize(
    ("function", "question", "arguments"),
    [
        (delete_file, "Delete 'a.txt'", {"path": "a.txt"}),
        (delete_file, "Delete the file report_1.txt.", {"path": "report_1.txt"}),
        (delete_named_user, "Delete user Bob", {"name": "Bob"}),
        (delete_named_user, "Delete the user Bob", {"name": "Bob"}),
        (tools.add_item, 'Add "milk" list', {"name": "milk"}),
        (tools.add_item, "Add lamps", {"name": "lamps"}),
        (tools.add_item, "Add the garden lamp", {"name": "garden lamp"}),
        (tools.add_item, "Add shed", {"name": "shed"}),
        (tools.add_item, "Add the tv", {"name": "tv"}),
        (tools.order_item, "Order 1 lamp", {"item": "lamp", "quantity": 1}),
        (open_ticket, "Open the ticket number 7", {"ticket_id": 7}),
        (buy_share, "Buy 10 shares of AAPL", {"symbol": "AAPL", "quantity": 10}),
        (set_timer, "Set the timer to 5 minutes", {"minutes": 5}),
        (set_timer, "Set a 5 minute timer", {"minutes": 5}),
        (set_timer, "Set a timer with the minutes 5 with volume 3", {"minutes": 5, "volume": 3}),
        (copy_file, "Copy 'a' to 'b'", {"source": "a", "destination": "b"}),
        (copy_file, "Copy the file from the source 'a' into 'b'", {"source": "a", "destination": "b"}),
        (turn_on_light, "Turn the light on in the kitchen", {"room": "kitchen"}),
        (turn_on_light, "Turn on the light in the kitchen", {"room": "kitchen"}),
        (lock, "Lock the front door", {"door": "front"}),
        (set_volume, "Set the volume to 5", {"level": 5}),
        (set_mode, "Set the mode boost", {"mode": "boost"}),
        (set_mode, "Set mode eco plus", {"mode": "eco_plus"}),
        (set_temperature, "Set the temperature to -2.5", {"value": -2.5}),
        (order, "Order 'lamp'", {"item": "lamp"}),
        (tools.buy_shares, "Buy 10 shares of AAPL", {"symbol": "AAPL", "quantity": 10}),
        (send_short_email, "Send an email to bob@x.com", {"to": "bob@x.com"}),
        (send_email, "Send an email to bob@x.com with the body 'hi'", {"to": "bob@x.com", "body": "hi"}),
        (start_engine, "Start the engine", {}),
    ],
)
def test_plain_command_is_followed(function: Callable[..., Any], question: str, arguments: dict[str, Any]) -> None:
    assert call(question, writing(function)) == (function.__name__, arguments)


def test_parameter_names_without_latin_letters_are_no_problem() -> None:
    schema = {"type": "object", "properties": {"数量": {"type": "integer"}}, "required": ["数量"]}
    spec = ToolSpec("stock", "How many items are in stock.", schema, read_only=True)
    assert choose.choose_calls("How many items are in stock? 5", [spec]) in ([], [("stock", {"数量": 5})])
