from typing import Any

import pytest

from midspan._types.messages import Message
from midspan._types.parts import Blob, Text, ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.gemini import Client, Content, Part
from midspan.messages import History
from tests.gemini.recorder import Recorder

ANSWER = {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
PNG = {"inlineData": {"mimeType": "image/png", "data": "AP8="}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [("user", "user"), ("model", "model"), ("assistant", "model"), ("function", "user"), ("tool", "user")],
)
def test_roles_of_other_apis_become_those_of_this_one(client: Client, server: Recorder, given: str, sent: str) -> None:
    server.answer(ANSWER)
    for content in ({"role": given, "parts": ["a"]}, Content.text("a", given)):
        client.generate_content([content, "go on"])
        assert server.last.body["contents"][0] == {"role": sent, "parts": [{"text": "a"}]}


def test_an_unknown_role_is_an_error_and_system_is_referred_to_system_instruction(client: Client) -> None:
    for content in ({"role": "system", "parts": ["a"]}, Content.text("a", "system")):
        with pytest.raises(ConfigError, match=r"contents\[0\] has the role 'system'; .* system_instruction="):
            client.generate_content([content, "b"])


def test_a_system_instruction_may_have_a_role_and_many_parts(client: Client, server: Recorder) -> None:
    server.answer(ANSWER)
    for system in (
        {"role": "system", "parts": ["a", "b"]},
        ["a", "b"],
        Content(parts=[Part(text="a"), Part(text="b")]),
    ):
        client.generate_content("x", system_instruction=system)
        assert server.last.body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}


def test_contents_of_a_model_are_sent_back_unchanged(client: Client, server: Recorder) -> None:
    odd = {"role": "model", "newField": 1, "parts": [{"text": 5, "txt": "a"}, {"brandNew": {"a_b": [1.5, None]}}]}
    server.answer({"candidates": [{"content": odd, "finishReason": "STOP"}]})
    first = client.generate_content("x")
    for turn in (first.content, odd, first.message):
        client.generate_content(["x", turn, "y"])
        assert server.last.body["contents"][1] == odd


def test_an_empty_turn_is_omitted(client: Client, server: Recorder) -> None:
    server.answer({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}]})
    nothing = client.generate_content("x").content
    client.generate_content([Content.text("x"), nothing, Content.text("y")])
    assert [one["role"] for one in server.last.body["contents"]] == ["user", "user"]


def test_dicts_and_bytes_within_parts_are_read(client: Client, server: Recorder) -> None:
    server.answer(ANSWER)
    parts: list[Any] = [
        Part(inline_data={"mime_type": "image/png", "data": b"\0\xff"}),  # type: ignore[arg-type]
        {"inline_data": {"mime_type": "image/png", "data": b"\0\xff"}},
        Part.from_bytes(bytearray(b"\0\xff"), "image/png"),
        Part.from_bytes(memoryview(b"\0\xff"), "image/png"),
    ]
    client.generate_content(parts)
    assert server.last.body["contents"] == [{"role": "user", "parts": [PNG] * 4}]


def test_media_can_be_in_prompts_and_in_results(client: Client, server: Recorder) -> None:
    server.answer(ANSWER)
    video = {"fileData": {"fileUri": "gs://v", "mimeType": "video/mp4"}, "videoMetadata": {"fps": 2}}
    response = Part.from_function_response(
        "shoot", {"ok": True}, id="1", media=[Part.from_bytes(b"\0\xff", "image/png"), Part.from_uri("gs://v", "a/b")]
    )
    client.generate_content([Content(role="user", parts=[Part.from_text("see")]), video, response])
    assert server.last.body["contents"] == [
        {"role": "user", "parts": [{"text": "see"}]},
        {"role": "user", "parts": [video]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "1",
                        "name": "shoot",
                        "response": {"ok": True},
                        "parts": [PNG, {"fileData": {"fileUri": "gs://v", "mimeType": "a/b"}}],
                    }
                }
            ],
        },
    ]


@pytest.mark.parametrize(("model", "nested"), [("gemini-3.8-flash", True), ("gemini-2.5-flash", False)])
def test_media_of_results_is_placed_where_the_model_accepts_it(
    client: Client, server: Recorder, model: str, nested: bool
) -> None:
    server.answer(ANSWER)
    shot = ToolResult("1", "shoot", {"ok": True}, content=(Blob.of(b"\0\xff", "image/png"),))
    history = History([Message.user("x"), Message("model", (ToolCall("1", "shoot"),)), Message.user(shot)])
    client.generate_content(history, model=model)
    [result, *beside] = server.last.body["contents"][2]["parts"]
    assert result["functionResponse"].get("parts") == ([PNG] if nested else None)
    assert beside == ([] if nested else [PNG])


def test_a_history_that_is_too_large_is_an_error(client: Client, server: Recorder) -> None:
    blob = Blob.of(bytes(38 * 2**20), "video/mp4")
    with pytest.raises(ConfigError, match="Gemini accepts at most 104,857,600"):
        client.generate_content(History([Message.user(blob, blob)]))
    assert server.seen == []


def test_an_edited_turn_is_sent_with_all_that_its_parts_had(client: Client, server: Recorder) -> None:
    picture = {**PNG, "partMetadata": {"k": 1}, "thoughtSignature": "s"}
    picture["inlineData"] = {**PNG["inlineData"], "displayName": "cat.png"}
    said = {"role": "model", "parts": [{"text": "hm"}, picture, {"text": "b", "newField": 2}]}
    server.answer({"candidates": [{"content": said, "finishReason": "STOP"}]})
    message = client.generate_content("x").message
    shorter = message.with_parts(message.parts[1:])
    client.generate_content(History([Message.user("x"), shorter, Message.user("y")]))
    assert server.last.body["contents"][1] == {"role": "model", "parts": said["parts"][1:]}
    changed = message.with_parts((Text("ha"), *message.parts[1:]))
    client.generate_content(History([Message.user("x"), changed, Message.user("y")]))
    assert server.last.body["contents"][1]["parts"] == [{"text": "ha"}, *said["parts"][1:]]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_contents_as_other_apis_write_them_are_an_error_that_says_what_gemini_takes(client: Client, role: str) -> None:
    with pytest.raises(ConfigError, match=r"contents\[0\] has 'content' as in other APIs; .* 'role' and 'parts'"):
        client.generate_content([{"role": role, "content": "hi"}])
