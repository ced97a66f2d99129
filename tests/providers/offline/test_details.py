"""What a prompt says beside the name of a thing: to whom, how many, which way, when, on or off."""

from typing import Any

import pytest

from midspan.toolsets.clock import clock_tools
from midspan.types.messages import Message
from midspan.types.parts import ToolResult
from tests.providers.offline.sample_tools import number, text, tool
from tests.providers.offline.test_client import ask, calls

TRANSFER = tool(
    "transfer_money",
    "Transfer money to somebody.",
    "amount recipient",
    amount=number("How much."),
    recipient=text("Who gets it."),
)
EMAIL = tool(
    "send_email", "Send an email.", "to subject", to=text("Address of the recipient."), subject=text("The subject.")
)
PIZZA = tool(
    "order_pizza",
    "Order a pizza.",
    "kind",
    kind=text("The kind of pizza."),
    size=text("The size.", enum=["small", "medium", "large"]),
    count={"type": "integer", "description": "How many."},
)
CLOCK = tuple(one.spec for one in clock_tools())


@pytest.mark.parametrize("prompt", ["Transfer 20 to Alice", "Transfer Alice 20 dollars"])
def test_the_verb_at_the_beginning_is_nobody(prompt: str) -> None:
    assert calls(ask(prompt, tools=[TRANSFER])) == [("transfer_money", {"amount": 20, "recipient": "Alice"})]


def test_nor_is_it_the_subject_of_an_email() -> None:
    assert ask("Email bob@x.org", tools=[EMAIL]).text == "What is the subject for send_email?"
    assert calls(ask("Email Bob about lunch", tools=[EMAIL])) == [("send_email", {"to": "Bob", "subject": "lunch"})]


@pytest.mark.parametrize(
    ("prompt", "time"),
    [
        ("If it is 3pm in London, what time is it in Sydney?", "15:00"),
        ("What is 3pm London time in Sydney?", "15:00"),
        ("What time is it in Sydney when it is 3:30 pm in London?", "15:30"),
        ("Convert 14:30 from London to Sydney", "14:30"),
    ],
)
def test_a_time_is_converted_from_where_it_is_known(prompt: str, time: str) -> None:
    assert calls(ask(prompt, tools=CLOCK)) == [("convert_time", {"time": time, "source": "London", "target": "Sydney"})]


def test_how_many_and_how_large_is_not_dropped() -> None:
    assert calls(ask("Order two large margherita pizzas", tools=[PIZZA])) == [
        ("order_pizza", {"kind": "margherita", "size": "large", "count": 2})
    ]
    assert ask("Order a large pizza", tools=[PIZZA]).text == "What is the kind for order_pizza?"


def test_a_quotation_keeps_its_question_mark() -> None:
    send = tool("send_note", "Send a note.", "body", body=text("The body of the note."))
    assert calls(ask('Send a note saying "Are you coming?"', tools=[send])) == [
        ("send_note", {"body": "Are you coming?"})
    ]


@pytest.mark.parametrize("schema", [{"type": "string", "format": "date"}, {"type": "date"}])
def test_a_format_asks_for_a_date(schema: dict[str, Any]) -> None:
    book = tool("book_table", "Book a table.", "moment", moment=schema)
    assert calls(ask("Book a table for tomorrow", tools=[book])) == [("book_table", {"moment": "2025-03-02"})]


@pytest.mark.parametrize(
    ("description", "given"), [("How many, default 5.", {"count": 5}), ("How many. Defaults to ...", None)]
)
def test_a_default_may_be_told_in_words(description: str, given: dict[str, Any] | None) -> None:
    roll = tool("roll_dice", "Roll dice.", "count", count={"type": "integer", "description": description})
    assert calls(ask("Roll the dice", tools=[roll])) == ([("roll_dice", given)] if given else [])


@pytest.mark.parametrize(
    ("prompt", "on"),
    [
        ("Turn the kitchen light off", False),
        ("Turn off the kitchen light", False),
        ("Switch the kitchen light on", True),
    ],
)
def test_a_switch_is_turned_on_and_off(prompt: str, on: bool) -> None:
    light = tool("set_light", "Switch a light.", "room on", room=text("The room."), on={"type": "boolean"})
    assert calls(ask(prompt, tools=[light])) == [("set_light", {"room": "kitchen", "on": on})]


USERS = (
    tool("delete_user", "Delete a user.", "user_id", user_id={"type": "integer", "description": "Id of the user."}),
    tool("list_users", "List the users.", ""),
)


def asked_which() -> list[Message | str]:
    looked_up = ask("Delete a user", tools=USERS)
    found = [{"id": 1, "name": "Anna"}, {"id": 2, "name": "Bob"}]
    result = Message.user(ToolResult(looked_up.calls[0].id, "list_users", found))
    asked = ask("Delete a user", looked_up, result, tools=USERS)
    assert asked.text == "Which user do you mean: Anna; Bob?"
    return ["Delete a user", looked_up, result, asked]


@pytest.mark.parametrize("answer", ["Bob", "Bob, please", "the second one", "2"])
def test_which_one_is_meant_may_be_answered(answer: str) -> None:
    assert calls(ask(*asked_which(), answer, tools=USERS)) == [("delete_user", {"user_id": 2})]


def test_who_asks_back_is_asked_again() -> None:
    assert ask(*asked_which(), "what?", tools=USERS).text == "Which user do you mean: Anna; Bob?"
    question = ask("Order a pizza", tools=[PIZZA])
    for said in ("what?", "Why?", "?"):
        assert ask("Order a pizza", question, said, tools=[PIZZA]).text == question.text
    assert calls(ask("Order a pizza", question, "what?", question, "Margherita", tools=[PIZZA])) == [
        ("order_pizza", {"kind": "Margherita"})
    ]
