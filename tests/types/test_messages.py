import copy
import pickle

from msgspec import Raw

from midspan._types.messages import History, Message
from midspan._types.parts import ProviderData, Text, Thought, ToolCall, ToolResult


def test_the_text_of_a_message_is_its_words_without_thoughts() -> None:
    message = Message("model", (Thought("hm"), Text("It is "), ToolCall("1", "f"), Text("5.")))
    assert message.text == "It is 5."


def test_a_call_that_the_provider_answered_itself_wants_no_answer() -> None:
    parts = (ToolCall("1", "search"), ToolResult("1", "search", "found"), ToolCall("2", "add"))
    assert Message("model", parts).calls == (ToolCall("2", "add"),)


def test_an_edited_message_keeps_the_data_of_the_parts_that_stay_and_its_origin() -> None:
    data = ProviderData("gemini", Raw(b'{"text":"a","x":1}'))
    message = Message("model", (Text("a", data), Text("b")), ProviderData("gemini", Raw(b"{}")))
    edited = message.with_parts(message.parts[:1])
    assert edited == Message("model", (Text("a", data),), ProviderData("gemini"))
    assert edited.parts[0] is message.parts[0]
    assert Message.user("a").with_parts([Text("b")]) == Message.user("b")


def test_a_history_grows_without_changing() -> None:
    first = History([Message.user("a")])
    second = first.append(Message.user("b"), Message.user("c"))
    assert [message.text for message in first] == ["a"]
    assert [message.text for message in second] == ["a", "b", "c"]
    assert second == History([*second])
    assert len(second) == 3


def test_a_history_can_be_copied_and_pickled() -> None:
    history = History([Message.user("a")])
    history.derived("x", lambda _known, _new: memoryview(b"a"))
    assert copy.deepcopy(history) == pickle.loads(pickle.dumps(history)) == history


def test_what_is_derived_from_a_history_is_made_once_and_extended_with_new_messages() -> None:
    asked: list[tuple[int | None, int]] = []

    def extend(known: int | None, new: tuple[Message, ...]) -> int:
        asked.append((known, len(new)))
        return (known or 0) + len(new)

    first = History([Message.user("a")])
    assert first.derived("x", extend) == first.derived("x", extend) == 1
    second = first.append(Message.user("b"), Message.user("c"))
    assert (second.derived("x", extend), first.derived("x", extend)) == (3, 1)
    assert asked == [(None, 1), (1, 2)]


def test_a_history_of_other_messages_keeps_what_was_derived_from_those_they_share() -> None:
    history = History([Message.user("a"), Message.user("b")])
    history.derived("x", lambda _known, new: len(new))
    longer = history.with_messages([*history, Message.user("c")])
    assert longer.derived("x", lambda known, new: (known, len(new))) == (2, 1)  # type: ignore[comparison-overlap]
    other = history.with_messages([history[0], Message.user("other"), Message.user("c")])
    assert other.derived("x", lambda known, new: (known, len(new))) == (None, 3)  # type: ignore[comparison-overlap]
