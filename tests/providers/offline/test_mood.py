"""What is forbidden is not done, and what is only talked about neither."""

import pytest

from tests.providers.offline.sample_tools import number, text, tool
from tests.providers.offline.test_client import ask, calls

TOOLS = (
    tool("delete_user", "Delete a user.", "user_id", user_id={"type": "integer", "description": "Id of the user."}),
    tool("cancel_order", "Cancel an order.", "order_id", order_id={"type": "integer"}),
    tool(
        "transfer_money",
        "Transfer money to somebody.",
        "amount recipient",
        amount=number("How much."),
        recipient=text("Who gets it."),
    ),
    tool("play_music", "Play music by an artist.", "artist", artist=text("The artist.")),
    tool("order_pizza", "Order a pizza.", "kind", kind=text("The kind of pizza.")),
    tool("get_user", "Get a user.", "user_id", user_id={"type": "integer", "description": "Id of the user."}),
)


@pytest.mark.parametrize(
    "prompt",
    [
        "Don't delete user 2",
        "Don\u2019t delete user 2",
        "DO NOT DELETE USER 2",
        "Do not transfer 100 dollars to Eve",
        "Please don't cancel order 99",
        "Never remove user 2",
        "I don't want you to delete user 2",
        "Make sure not to delete user 2",
        "Under no circumstances delete user 2",
        "Stop playing music by Abba",
        "Stop the music by Abba",
        "Hold off on cancelling order 5",
        "Delete everyone except user 2",
    ],
)
def test_what_is_forbidden_is_not_done(prompt: str) -> None:
    assert calls(ask(prompt, tools=TOOLS)) == []


@pytest.mark.parametrize(
    "prompt",
    [
        "What would happen if I deleted user 1?",
        "If I delete user 5, what happens?",
        "Write me a poem about deleting user 5",
        "Tell me a joke about pizza",
        "Explain the difference between cancelling order 5 and returning it",
        "Should I transfer 1000 to Alice?",
        "I wonder whether I should transfer 1000 to Alice",
        "How do I delete user 5?",
        "I want to know how to cancel order 5",
        "What is the best pizza in Naples?",
        "Did you delete user 5?",
        "Is order 5 cancelled?",
        "I deleted user 5 yesterday",
        "Why was order 5 cancelled?",
    ],
)
def test_what_is_only_talked_about_is_not_done(prompt: str) -> None:
    assert calls(ask(prompt, tools=TOOLS)) == []


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Delete user 2", "delete_user"),
        ("Could you delete user 2?", "delete_user"),
        ("I'd like to cancel order 5", "cancel_order"),
        ("Can I cancel order 5?", "cancel_order"),
        ("Don't forget to cancel order 5", "cancel_order"),
        ("Cancel order 5, don't wait", "cancel_order"),
        ("Cancel order 5 and don't delete user 3", "cancel_order"),
        ("Why don't you play music by Abba?", "play_music"),
        ("What is the best pizza? Order a margherita pizza.", "order_pizza"),
        ("Show me user 3 without deleting it", "get_user"),
    ],
)
def test_what_is_asked_for_is_done_though_something_else_is_not(prompt: str, name: str) -> None:
    assert [call for call, _ in calls(ask(prompt, tools=TOOLS))] == [name]


def test_of_what_is_excepted_nothing_is_done() -> None:
    assert calls(ask("Delete user 3 but not user 2", tools=TOOLS)) == [("delete_user", {"user_id": 3})]


def test_an_answer_may_forbid_what_was_asked_about() -> None:
    asked = ask("Delete a user", tools=TOOLS[:1])
    assert asked.text.endswith("?")
    for said in ("Don't delete user 2", "never mind", "no"):
        assert calls(ask("Delete a user", asked, said, tools=TOOLS[:1])) == []
