from types import SimpleNamespace
from typing import Any

import pytest

from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult, is_local_id, local_id
from midspan.errors import ConfigError


def test_blob_returns_its_bytes() -> None:
    assert Blob.of(b"\x00\xff\xfe", "image/png").data == b"\x00\xff\xfe"


def test_blob_reads_url_safe_base64_without_padding() -> None:
    assert Blob("image/png", base64="AP_-").data == b"\x00\xff\xfe"
    assert Blob("image/png", base64="iVBORw").data == b"\x89PNG"
    assert Blob("image/png", base64="iVBORw==").data == b"\x89PNG"


def test_blob_that_is_elsewhere_has_no_data() -> None:
    with pytest.raises(ConfigError, match=r"gs://b/x\.png"):
        _ = Blob("image/png", url="gs://b/x.png").data


@pytest.mark.parametrize("base64", ["A", "AAAAA", "ä"])
def test_data_that_is_not_base64_is_named(base64: str) -> None:
    with pytest.raises(ConfigError, match="the data of this image/png is not valid base64"):
        _ = Blob("image/png", base64=base64).data


def test_local_ids_are_unique_and_recognized() -> None:
    ids = {local_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_local_id(id) for id in ids)
    assert not is_local_id("call_1")


class Spelt:
    """A call as another library may say it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__ |= fields


@pytest.mark.parametrize(
    "given",
    [
        ToolCall("1", "add", {"a": 1}),
        {"id": "1", "name": "add", "args": {"a": 1}},
        {"id": 1, "name": "add", "args": None, "arguments": {"a": 1}},
        Spelt(id="1", name="add", args={"a": 1}),
        Spelt(id="1", name="add", arguments={"a": 1}),
    ],
)
def test_call_is_read_as_any_api_writes_it(given: Any) -> None:
    assert ToolCall.read(given) == ToolCall("1", "add", {"a": 1})


@pytest.mark.parametrize(
    "given",
    [
        5,
        "add",
        {"args": {}},
        {"name": 5},
        {"name": "add", "args": [1]},
        {"name": "add", "response": {"result": 1}},
        Blob("image/png", name="a.png"),
        ToolResult("1", "add", 3),
        Spelt(name="add"),
        ImportError("no", name="add"),
    ],
)
def test_value_that_is_not_a_call_is_not_read_as_one(given: Any) -> None:
    assert ToolCall.read(given) is None


def test_call_without_arguments_and_id_gets_a_local_id() -> None:
    made = ToolCall.read({"name": "now"})
    assert made is not None
    assert (made.name, made.arguments, is_local_id(made.id)) == ("now", {}, True)
    assert ToolCall.read({"id": "1", "name": "now"}) == ToolCall("1", "now")


def test_error_result_of_a_call_has_its_id_and_its_notes() -> None:
    assert ToolCall("1", "add").error_result("no", "a", "b") == ToolResult(
        "1", "add", "no", is_error=True, notes=("a", "b")
    )


@pytest.mark.parametrize("arguments", [{}, None])
@pytest.mark.parametrize("word", ["args", "arguments"])
def test_call_without_arguments_is_a_call(word: str, arguments: Any) -> None:
    class Foreign:
        name = "now"

    setattr(Foreign, word, arguments)
    for given in (Foreign(), {"name": "now", word: arguments}, {"name": "now"}):
        read = ToolCall.read(given)
        assert read is not None
        assert (read.name, read.arguments) == ("now", {})
    assert ToolCall.read(SimpleNamespace(name="now")) is None


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ToolResult("1", "f", 0, content=(Text("a"),)), 0),
        (ToolResult("1", "f"), None),
        (
            ToolResult("1", "f", content=(Text("a"), Blob("image/png"), Resource("u"), Resource("v", text="b"))),
            "a\nu\nb",
        ),
        (ToolResult("1", "f", content=(Blob("image/png"),)), None),
    ],
)
def test_model_reads_the_value_or_the_texts_of_a_result(result: ToolResult, value: Any) -> None:
    assert result.model_value == value


def test_media_of_a_result_are_its_blobs() -> None:
    image = Blob("image/png")
    assert ToolResult("1", "f", content=(Text("a"), image, Resource("u"))).media == (image,)
