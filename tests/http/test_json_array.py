import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._http.json_array import ArrayStream


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
