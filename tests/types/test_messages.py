import copy
import pickle

from msgspec import Raw

from midspan.types.messages import NO_BYTES, History, Message
from midspan.types.parts import Text, Thought, ToolCall, ToolResult


def test_the_text_of_a_message_is_its_words_without_thoughts() -> None:
    message = Message("model", (Thought("hm"), Text("It is "), ToolCall("1", "f"), Text("5.")))
    assert message.text == "It is 5."


def test_a_call_that_the_provider_answered_itself_wants_no_answer() -> None:
    parts = (ToolCall("1", "search"), ToolResult("1", "search", "found"), ToolCall("2", "add"))
    assert Message("model", parts).calls == (ToolCall("2", "add"),)


def test_an_edited_message_keeps_signatures_and_loses_its_bytes() -> None:
    message = Message("model", (Text("a", "sig"), Text("b")), "gemini", Raw(b"{}"))
    edited = message.edited(message.parts[:1])
    assert edited == Message("model", (Text("a", "sig"),), "gemini")


def test_an_edited_message_keeps_the_bytes_of_parts_that_are_all_its_own() -> None:
    raw = Raw(b'{"role":"model","new":1,"parts":[{"text":"a","x":1}, {"text":"b"},{"text":"a","x":2}]}')
    message = Message("model", (Text("a"), Text("b"), Text("a")), "gemini", raw)
    first, _, last = message.parts
    edited = message.edited((last, first))
    assert edited.parts == (Text("a"), Text("a"))
    assert edited.raw == Raw(b'{"role":"model","new":1,"parts":[{"text":"a","x":2},{"text":"a","x":1}]}')
    assert edited.edited((edited.parts[0],)).raw == Raw(b'{"role":"model","new":1,"parts":[{"text":"a","x":2}]}')


def test_an_edited_message_loses_its_bytes_where_they_would_not_say_what_it_says() -> None:
    parts = (Text("a"), Text("b"))
    raw = b'{"parts":[{"text":"a"},{"text":"b"}]}'
    message = Message("model", parts, "gemini", Raw(raw))
    assert message.edited((parts[0], Text("c"))).raw is NO_BYTES
    assert message.edited(()).raw is NO_BYTES
    for other in (b"", b"{}", b"[]", b'{"parts":{"text":"a"}}', b'{"parts":[1]}', b'{"content":[1,2]}', b"{"):
        assert Message("model", parts, "gemini", Raw(other)).edited(parts[:1]).raw is NO_BYTES


def test_a_history_grows_without_changing() -> None:
    first = History([Message.user("a")])
    second = first.plus(Message.user("b"), Message.user("c"))
    assert [message.text for message in first] == ["a"]
    assert [message.text for message in second] == ["a", "b", "c"]
    assert second == History([*second])
    assert len(second) == 3


def test_a_history_can_be_copied_and_pickled() -> None:
    history = History([Message.user("a")])
    history.encoded["x"] = (1, memoryview(b"a"))
    assert copy.deepcopy(history) == pickle.loads(pickle.dumps(history)) == history


def test_what_a_history_encodes_is_not_seen_by_the_one_it_grew_from() -> None:
    first = History([Message.user("a")])
    second = first.plus(Message.user("b"))
    second.encoded["x"] = (2, b"")
    assert first.encoded == {}
