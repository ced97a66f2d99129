import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._http.body import ServerSentEvent, ServerSentEventParser


def events(*pieces: bytes) -> list[ServerSentEvent]:
    stream = ServerSentEventParser()
    return [event for piece in pieces for event in stream.feed(piece)] + stream.end()


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"id: 7\nretry: 3\ndata: a\n\n", [b"a"]),
        (b"data\ndata: a\n\n", [b"\na"]),
        (b": keep-alive\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\n\n\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: \xc3\xa4\r\n\r\n", ["ä".encode()]),
        (b"", []),
    ],
)
def test_events_end_at_empty_lines(stream: bytes, data: list[bytes]) -> None:
    assert events(stream) == [ServerSentEvent(one) for one in data]


def test_event_names_belong_to_one_event() -> None:
    stream = b"event: ping\ndata: {}\n\ndata: a\n\nevent:error\r\ndata: b\r\n\r\n"
    assert events(stream) == [ServerSentEvent(b"{}", "ping"), ServerSentEvent(b"a"), ServerSentEvent(b"b", "error")]


def test_lines_outside_events_are_stray_events_in_order() -> None:
    stream = b'data: a\n\n{\n  "error": {}\n}\n\ndata: b\n\n'
    assert events(stream) == [
        ServerSentEvent(b"a"),
        ServerSentEvent(b'{\n  "error": {}\n}', stray=True),
        ServerSentEvent(b"b"),
    ]


def test_stray_line_is_not_mixed_with_data() -> None:
    assert events(b"data: a\n{}\ndata: b\n\n") == [
        ServerSentEvent(b"a"),
        ServerSentEvent(b"{}", stray=True),
        ServerSentEvent(b"b"),
    ]


def test_line_of_many_megabytes_is_one_event() -> None:
    huge = b"x" * 5_000_000
    whole = b"data: " + huge + b"\r\n\r\n"
    pieces = [whole[index : index + 65_536] for index in range(0, len(whole), 65_536)]
    assert events(*pieces) == [ServerSentEvent(huge)]


def test_event_ends_with_the_piece_that_has_its_empty_line() -> None:
    stream = ServerSentEventParser()
    assert stream.feed(b"data: a\n") == []
    assert stream.feed(b"\n") == [ServerSentEvent(b"a")]


def test_byte_order_mark_is_removed_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert events(mark + b"data: a\n\n", mark + b"{}\n\n") == [
        ServerSentEvent(b"a"),
        ServerSentEvent(mark + b"{}", stray=True),
    ]


lines = st.sampled_from([b"data: a", b"data: bc\r", b"\r", b"", b": x", b"event: e", b'{"a":1}', b"data", b"  "])


@given(st.lists(lines, max_size=12), st.data())
def test_events_do_not_depend_on_where_the_stream_is_cut(given_lines: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(given_lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*pieces) == events(stream) == events(*(bytes([byte]) for byte in stream))
