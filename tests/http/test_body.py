import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._http.body import ArrayStream, Event, EventStream


def events(*pieces: bytes) -> list[Event]:
    stream = EventStream()
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
    assert events(stream) == [Event(one) for one in data]


def test_event_names_belong_to_one_event() -> None:
    stream = b"event: ping\ndata: {}\n\ndata: a\n\nevent:error\r\ndata: b\r\n\r\n"
    assert events(stream) == [Event(b"{}", "ping"), Event(b"a"), Event(b"b", "error")]


def test_lines_outside_events_are_stray_events_in_order() -> None:
    stream = b'data: a\n\n{\n  "error": {}\n}\n\ndata: b\n\n'
    assert events(stream) == [Event(b"a"), Event(b'{\n  "error": {}\n}', stray=True), Event(b"b")]


def test_stray_line_is_not_mixed_with_data() -> None:
    assert events(b"data: a\n{}\ndata: b\n\n") == [Event(b"a"), Event(b"{}", stray=True), Event(b"b")]


def test_line_of_many_megabytes_is_one_event() -> None:
    huge = b"x" * 5_000_000
    whole = b"data: " + huge + b"\r\n\r\n"
    pieces = [whole[index : index + 65_536] for index in range(0, len(whole), 65_536)]
    assert events(*pieces) == [Event(huge)]


lines = st.sampled_from([b"data: a", b"data: bc\r", b"\r", b"", b": x", b"event: e", b'{"a":1}', b"data", b"  "])


@given(st.lists(lines, max_size=12), st.data())
def test_events_do_not_depend_on_where_the_stream_is_cut(given_lines: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(given_lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*pieces) == events(stream) == events(*(bytes([byte]) for byte in stream))


def elements(*pieces: bytes) -> tuple[list[bytes], bytes]:
    stream = ArrayStream()
    return [element for piece in pieces for element in stream.feed(piece)], stream.end()


@pytest.mark.parametrize(
    ("stream", "expected", "rest"),
    [
        (b"[]", [], b""),
        (b" [ ] ", [], b""),
        (b'[{"a":1}]', [b'{"a":1}'], b""),
        (b'[{"a":1},\r\n{"b":[1,2,{"c":"]}"}]}\r\n]\r\n', [b'{"a":1}', b'{"b":[1,2,{"c":"]}"}]}'], b""),
        (rb'[{"a":"\"]},\\"},{}]', [rb'{"a":"\"]},\\"}', b"{}"], b""),
        (b'[{"a":1},{"b":', [b'{"a":1}'], b'{"b":'),
        (b'[{"a":1}', [], b'{"a":1}'),
        (b'["x", 1, null]', [b'"x"', b"1", b"null"], b""),
        (b'[{"a":1}] and more', [b'{"a":1}'], b"and more"),
    ],
)
def test_array_is_split_into_its_elements(stream: bytes, expected: list[bytes], rest: bytes) -> None:
    assert elements(stream) == (expected, rest)
    assert elements(*(bytes([byte]) for byte in stream)) == (expected, rest)


def test_long_element_in_small_pieces_is_read_in_linear_time() -> None:
    element = json.dumps({"data": "x" * 1_000_000, "more": ["\\", '"'] * 1000}).encode()
    whole = b"[" + element + b"," + element + b"]"
    pieces = [whole[index : index + 997] for index in range(0, len(whole), 997)]
    assert elements(*pieces) == ([element, element], b"")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(json_values, max_size=5), st.data())
def test_elements_do_not_depend_on_where_the_stream_is_cut(values: list[Any], data: st.DataObject) -> None:
    stream = json.dumps(values, indent=data.draw(st.sampled_from([None, 2]))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found, rest = elements(*pieces)
    assert [json.loads(element) for element in found] == values
    assert rest == b""
