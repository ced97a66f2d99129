"""Conversations that runs continue."""

import pytest

from midspan import Agent, Chat, tool
from midspan._loop.prompt import conversation
from midspan.messages import History, Message, Text, ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from tests.schema.work import bounded_work

CALL = ToolCall("1", "add", {})
RESULT = ToolResult("1", "add", 3)
TAILS: dict[str, list[Message]] = {
    "answer": [Message("model", (Text("yes"),))],
    "call without a result": [Message("model", (CALL,))],
    "call and result": [Message("model", (CALL,)), Message("user", (RESULT,)), Message("model", (Text("3"),))],
    "result without a call": [Message("model", (Text("a"),)), Message("user", (RESULT,))],
    "another message of the user": [Message.user("and")],
    "two calls with one id": [Message("model", (CALL, CALL)), Message("user", (RESULT, RESULT))],
}


@pytest.mark.parametrize("prompt", ["next", None])
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@pytest.mark.parametrize("start", [[Message.user("a")], [Message("model", (CALL,))]], ids=["prompt", "open call"])
def test_messages_after_a_repaired_conversation_are_repaired_as_in_a_new_one(
    start: list[Message], tail: list[Message], prompt: str | None
) -> None:
    repaired, _ = conversation(None, start)
    continued = repaired.append(*tail)
    expected, count = conversation(prompt, list(continued))
    assert conversation(prompt, continued) == (expected, count)
    assert conversation(prompt, History(continued)) == (expected, count)


def test_result_in_the_same_message_as_its_call_answers_it() -> None:
    answered = Message("model", (CALL, RESULT, Text("It is 3.")))
    history, _ = conversation("next", [Message.user("a"), answered])
    assert history.messages == (Message.user("a"), answered, Message.user("next"))


def test_chat_repairs_only_the_messages_since_its_last_run() -> None:
    chat = Chat(Agent(ScriptedProvider(["answer"] * 100)))
    for _ in range(100):
        chat = chat.ask_sync("question")
    with bounded_work(100):
        conversation("question", chat.messages)
    with pytest.raises(AssertionError, match="more than 100 function calls"), bounded_work(100):
        conversation("question", list(chat.messages))  # nobody has looked at these yet


def test_values_derived_from_a_history_are_kept_unless_its_messages_were_repaired() -> None:
    messages = (Message.user("a"), Message("model", (Text("b"),)))
    for history, expected in [
        (History(messages), (2, 1)),
        (History((*messages, Message("model", (CALL,)))), (3, 2)),
        (History((Message("user", (RESULT,)), *messages)), (None, 4)),
    ]:
        history.derived("count", lambda _known, new: len(new))
        longer, _ = conversation("c", history)
        assert longer.derived("count", lambda known, new: (known, len(new))) == expected  # type: ignore[comparison-overlap]


def test_calls_in_adjacent_messages_at_the_end_are_run_together() -> None:
    first, second = Message("model", (Text("Both."), CALL)), Message("model", (ToolCall("2", "add", {}),))
    provider = ScriptedProvider(["done"])
    result = Agent(provider, [tool(lambda: 3, name="add")]).run_sync(messages=[Message.user("?"), first, second])
    assert [run.value for run in result.tool_calls] == [3, 3]
    assert [message.role for message in provider.requests[0].history] == ["user", "model", "user"]


def test_result_without_its_call_is_text_in_the_first_message_too() -> None:
    for messages in (None, ()):
        history, _ = conversation(RESULT, messages)
        assert history[0].parts == (Text("add returned: 3"),)
