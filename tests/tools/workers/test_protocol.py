"""Frames: any split of the stream, garbage, oversized frames, and messages of newer releases."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._types.specs import ToolSpec
from midspan.tools.workers.protocol import (
    Call,
    Exit,
    FrameDecoder,
    FromWorker,
    Log,
    Ping,
    Pong,
    Progress,
    ProtocolError,
    Register,
    RegisteredTool,
    Result,
    ToWorker,
    encode,
)
from midspan.tools.workers.supervisor import NOT_KILLED, exit_frame

MESSAGES: list[FromWorker] = [
    Register(1, "secret", 7, (RegisteredTool(ToolSpec("add", "Adds."), 30.0), RegisteredTool(ToolSpec("x"), None))),
    Result(1, b'{"id":"1"}'),
    Progress(1, None, "reading"),
    Log(0, 20, "a\nb"),
    Pong(),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_read_from_any_pieces_of_the_stream(sizes: list[int]) -> None:
    stream, decoder = b"".join(map(encode, MESSAGES)), FrameDecoder[FromWorker](FromWorker)
    read: list[FromWorker] = []
    while stream:
        for size in sizes:
            read += decoder.feed(stream[:size])
            stream = stream[size:]
    assert read == MESSAGES


@given(st.binary(min_size=1, max_size=200))
def test_hostile_bytes_are_a_protocol_error_or_incomplete(data: bytes) -> None:
    decoder = FrameDecoder[ToWorker](ToWorker)
    try:
        messages = list(decoder.feed(len(data).to_bytes(4, "big") + data))
    except ProtocolError:
        return
    assert [encode(message)[4:] for message in messages] == [data]


def test_oversized_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="a frame of 101 bytes was announced; the maximum is 100"):
        list(FrameDecoder[ToWorker](ToWorker, 100).feed((101).to_bytes(4, "big")))
    frame = encode(Ping())
    assert list(FrameDecoder[ToWorker](ToWorker, len(frame) - 4).feed(frame)) == [Ping()]


def test_fields_of_a_newer_release_are_ignored() -> None:
    body = msgspec.msgpack.encode(["ping", "new"])
    assert list(FrameDecoder[ToWorker](ToWorker).feed(len(body).to_bytes(4, "big") + body)) == [Ping()]
    assert Call(1, "id", "name", b"{}").seconds is None


@pytest.mark.parametrize("code", [0, 1, 127, 128 + 9, NOT_KILLED])
def test_frame_that_a_supervisor_sends_is_an_exit_message(code: int) -> None:
    assert list(FrameDecoder[FromWorker](FromWorker).feed(exit_frame(code))) == [Exit(code)]
