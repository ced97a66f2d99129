import copy
import pickle

from msgspec import Raw

from midspan._types.messages import History, Message
from midspan._types.parts import ProviderData, Text, Thought, ToolCall, ToolResult


def test_text_of_a_message_excludes_thoughts() -> None:
    message = Message("model", (Thought("hm"), Text("It is "), ToolCall("1", "f"), Text("5.")))
    assert message.text == "It is 5."


def test_call_answered_by_the_provider_needs_no_result() -> None:
    parts = (ToolCall("1", "search"), ToolResult("1", "search", "found"), ToolCall("2", "add"))
    assert Message("model", parts).calls == (ToolCall("2", "add"),)


def test_edited_message_keeps_the_data_of_remaining_parts() -> None:
    data = ProviderData("gemini", Raw(b'{"text":"a","x":1}'))
    message = Message("model", (Text("a", data), Text("b")), ProviderData("gemini", Raw(b"{}")))
    edited = message.with_parts(message.parts[:1])
    assert edited == Message("model", (Text("a", data),), ProviderData("gemini"))
    assert edited.parts[0] is message.parts[0]
    assert Message.user("a").with_parts([Text("b")]) == Message.user("b")


def test_append_returns_a_new_history() -> None:
    first = History([Message.user("a")])
    second = first.append(Message.user("b"), Message.user("c"))
    assert [message.text for message in first] == ["a"]
    assert [message.text for message in second] == ["a", "b", "c"]
    assert second == History([*second])
    assert len(second) == 3


def test_history_can_be_copied_and_pickled() -> None:
    history = History([Message.user("a")])
    history.derived("x", lambda _known, _new: memoryview(b"a"))
    assert copy.deepcopy(history) == pickle.loads(pickle.dumps(history)) == history


def test_derived_values_are_computed_once_and_extended() -> None:
    asked: list[tuple[int | None, int]] = []

    def extend(known: int | None, new: tuple[Message, ...]) -> int:
        asked.append((known, len(new)))
        return (known or 0) + len(new)

    first = History([Message.user("a")])
    assert first.derived("x", extend) == first.derived("x", extend) == 1
    second = first.append(Message.user("b"), Message.user("c"))
    assert (second.derived("x", extend), first.derived("x", extend)) == (3, 1)
    assert asked == [(None, 1), (1, 2)]


def test_histories_are_equal_by_their_messages() -> None:
    history = History([Message.user("a")])
    assert history == History([Message.user("a")]) == (Message.user("a"),)
    assert history != History([Message.user("b")])
    assert history != (Message.user("b"),)
    assert history != [Message.user("a")]
    assert (Message.user("a") in history, Message.user("b") in history) == (True, False)
    assert repr(history) == f"History([{Message.user('a')!r}])"
