"""Pairs of opposite tools: commands call the right one, and nothing else calls either."""

from typing import Any

import pytest

from midspan._types.specs import ToolSpec
from midspan.providers.offline.choose import choose_calls

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def spec(name: str, description: str, **parameters: Any) -> ToolSpec:
    """A tool that declares nothing about its effects; all parameters are required."""
    return ToolSpec(name, description, {"type": "object", "properties": parameters, "required": [*parameters]})


PAIRS: dict[str, tuple[ToolSpec, ToolSpec]] = {
    "place/cancel": (
        spec("order_pizza", "Order a pizza.", topping=STRING),
        spec("cancel_pizza", "Cancel a pizza.", topping=STRING),
    ),
    "add/remove": (
        spec("add_tag", "Adds a tag to a note.", tag=STRING, note_id=INTEGER),
        spec("remove_tag", "Removes a tag from a note.", tag=STRING, note_id=INTEGER),
    ),
    "open/close": (
        spec("open_ticket", "Open a support ticket.", ticket_id=INTEGER),
        spec("close_ticket", "Close a support ticket.", ticket_id=INTEGER),
    ),
    "lock/unlock": (
        spec("lock_account", "Lock a user account.", user=STRING),
        spec("unlock_account", "Unlock a user account.", user=STRING),
    ),
    "start/stop": (
        spec("start_machine", "Start a machine.", machine=STRING),
        spec("stop_machine", "Stop a machine.", machine=STRING),
    ),
    "buy/sell": (
        spec("buy_stock", "Buy stock.", ticker=STRING, amount=INTEGER),
        spec("sell_stock", "Sell stock.", ticker=STRING, amount=INTEGER),
    ),
    "enable/disable": (
        spec("enable_plugin", "Enable a plugin.", plugin=STRING),
        spec("disable_plugin", "Disable a plugin.", plugin=STRING),
    ),
    "send/delete": (
        spec("send_invoice", "Send an invoice.", invoice_id=INTEGER),
        spec("delete_invoice", "Delete an invoice.", invoice_id=INTEGER),
    ),
}

COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "place/cancel": (
        ["Order a pizza with topping 'olives'", "order a pizza with the topping 'corn'"],
        ["Cancel the mushroom pizza", "cancel the 'olive' pizza", "Cancel the pizza with topping 'corn'"],
    ),
    "add/remove": (
        ["Add the tag 'urgent' to note 5", "add tag 'later' to note 12", "Add the tag 'work' to the note 3"],
        ["Remove the tag 'urgent' from note 5", "remove tag 'later' from note 12"],
    ),
    "open/close": (
        ["Open ticket 5", "open ticket #4", "Open the support ticket 9", "Open ticket number 7"],
        ["Close ticket 5", "close ticket #4", "Close the support ticket 9", "Close ticket number 7"],
    ),
    "lock/unlock": (
        ["Lock user 'kim'", "Lock the account of user 'bob'", "lock the user account 'ann'"],
        ["Unlock user 'kim'", "Unlock the account of user 'bob'", "unlock the user account 'ann'"],
    ),
    "start/stop": (
        ["Start the machine 'press 4'", "start machine P7", "Start 'drill'"],
        ["Stop the machine 'press 4'", "stop machine P7", "Stop 'drill'"],
    ),
    "buy/sell": (
        ["Buy 10 MSFT", "buy 5 'AAPL'", "Buy twelve TSLA"],
        ["Sell 10 MSFT", "sell 5 'AAPL'", "Sell twelve TSLA"],
    ),
    "enable/disable": (
        ["Enable the plugin 'spellcheck'", "enable spellcheck", "Enable the dark_mode plugin"],
        ["Disable the plugin 'spellcheck'", "disable spellcheck", "Disable the dark_mode plugin"],
    ),
    "send/delete": (
        ["Send invoice 5", "send the invoice 4", "Send invoice number 9"],
        ["Delete invoice 5", "delete the invoice 4", "Delete invoice number 9"],
    ),
}
POLITE = ["{}", "Please {}", "{} please.", "Could you {}?", "Can you please {}?", "I'd like to {}.", "I want you to {}"]
POLITE += ["Hey, {}!", "OK, now {}", "Kindly {}", "Go ahead and {}", "I need to {}", "Just {}."]

NOT_COMMANDS = [
    # negated
    "Don't {}", "dont {}", "Do NOT {}", "You shouldn't {}", "No need to {}",
    "There's no reason to {}", "Never, ever {}",
    "Under no circumstances {}", "Let's not {}", "I can not {}", "Unable to {}", "Nobody should {}", "Try not to {}",
    "Refrain from asking to {}", "I forbid you to {}", "Decline to {}", "Hesitate to {}", "I'd hate to {}",
    # taken back
    "{}... just kidding", "{} - no wait", "{}, scratch that", "{} (don't)", "{} on second thought", "{} never mind",
    "{}. Forget it.", "{} please no", "{} please stop", "Stop! {}", "Wait, {}", "Undo {}", "Undo the last command: {}",
    "Revert: {}", "Reverse {}", "Roll back {}", "Do the opposite of '{}'", "Take back the request to {}",
    "Rather than {}, wait", "Instead of waiting {}", "{} instead", "Ignore: {}", "Disregard '{}'",
    # asked
    "Did you {}?", "Have you tried to {}?", "May I {}?", "Shall I {}?", "Must I {}?", "How do I {}?", "How to {}",
    "What if I {}", "Is it safe to {}?", "Are you able to {}?", "Do you think I should {}?", "When did I {}?",
    "Who asked you to {}?", "Would you {}?", "Will you {}?", "Can anyone {}?", "Can you explain how to {}?",
    "Could you show me how to {}?", "Can you even {}?", "{}?", "{}, right?", "{} or not", "{}?!", "Tell me how to {}",
    # in the past, in the future, on a condition
    "I told you to {} yesterday", "You said you would {}", "I was going to {}", "I used to {}", "She wants to {}",
    "I might {}", "I'd rather {}", "I'll {}", "If it rains, {}", "{} if it rains", "{} unless I say otherwise",
    "{} when I say so", "{} after lunch", "{} tomorrow", "{} at 5pm", "{} in 10 minutes", "{} on Monday", "{} later",
    "{} as soon as possible", "Once Bob agrees, {}", "In an hour, {}", "Maybe {}", "{} perhaps", "{} sometime",
    # quoted and mentioned
    "Say '{}'", 'He said "{}"', "The command is: {}", "For example, {}", "'{}'", "`{}`", "What does '{}' do?",
    "ERROR: failed to {}", "Re: {}", "TODO: {}", "Echo {}", "Repeat after me: {}", "Pretend to {}", "Imagine you {}",
    "Schedule a job to {}", "Prepare to {}", "Ask Bob to {}", "Remind me to {}", "Have Bob {}", "Bob, {}",
    "Check whether I can {}", "Consider whether to {}", "Promise to {}", "Attempt to {}",
    # more than one request, and what is left over
    "{} and tell me a joke", "{}, then rest", "{} twice", "{} again", "{} or do nothing", "{} but ask first",
    "{} for Bob", "{} from Bob", "{} without asking", "{} was a mistake", "{} failed", "{} has failed", "{} = bad",
    "{} sounds good", "{} button", "{} screen is broken", "{} is what he said", "{} lol", "{} must never happen",
]  # fmt: skip

SIDES = [(name, side) for name in PAIRS for side in (0, 1)]


def calls(question: str, *tools: ToolSpec) -> list[str]:
    return [name for name, _ in choose_calls(question, tools)]


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_plain_imperative_calls_its_tool_and_never_the_opposite(name: str, side: int) -> None:
    tools = PAIRS[name]
    for command in COMMANDS[name][side]:
        for form in POLITE:
            question = form.format(command if form.startswith("{}") else command[0].lower() + command[1:])
            assert calls(question, *tools) == [tools[side].name], question
            assert calls(question, tools[1 - side]) == [], question


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_sentence_that_is_not_a_plain_command_calls_neither_tool(name: str, side: int) -> None:
    tools = PAIRS[name]
    for command in COMMANDS[name][side]:
        for form in NOT_COMMANDS:
            question = form.format(command if form.startswith("{}") else command[0].lower() + command[1:])
            for offered in (tools, tools[:1], tools[1:]):
                assert calls(question, *offered) == [], question
