"""Text that is nearly JSON is parsed as what it says, and never completed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._schema.lenient_json import CUT, InvalidJson, LenientJsonParser, parse_json, parse_lenient_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_valid_json_is_parsed_as_json(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert json.dumps(parse_lenient_json(text)) == json.dumps(value)


@given(VALUES)
def test_valid_json_is_decoded_unless_a_name_is_given_twice(value: Any) -> None:
    text = json.dumps(value)
    assert json.dumps(parse_json(text)) == text
    with pytest.raises(InvalidJson, match=r'^"a" is given twice$'):
        parse_json(f'[{{"a": {text}, "b": 1, "a": {text}}}]')


@given(VALUES)
def test_valid_json_is_parsed_the_same_by_the_lenient_parser(value: Any) -> None:
    text = json.dumps([value])[:-1] + ",]"  # the trailing comma forbids the strict way
    assert json.dumps(parse_lenient_json(text)) == json.dumps([value])


@given(st.dictionaries(st.text(max_size=6), VALUES, min_size=1, max_size=4), st.data())
def test_truncated_text_is_never_completed(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidJson, match=CUT):
        LenientJsonParser(text[:cut]).value()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'x', \"b\": 'say \"hi\"'}", {"a": "x", "b": 'say "hi"'}),
        ("{“a”: “x”, \u2018b\u2019: \u2018y\u2019}", {"a": "x", "b": "y"}),
        ('{"a": [1, 2,], "b": {"c": 1,},}', {"a": [1, 2], "b": {"c": 1}}),
        ("{a: 1, $b: 2, c-d: 3, é: 4}", {"a": 1, "$b": 2, "c-d": 3, "é": 4}),
        ("{'a': True, 'b': False, 'c': None}", {"a": True, "b": False, "c": None}),
        ('{"a": 1, // one\n /* two } */ "b": 2 # three\n}', {"a": 1, "b": 2}),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
        ('{"a": +5, "b": .5, "c": 5., "d": -2E3,}', {"a": 5, "b": 0.5, "c": 5.0, "d": -2000.0}),
        (r"{'a': 'it\'s', 'b': 'x\u00e9\n'}", {"a": "it's", "b": "xé\n"}),
        (r'{"a": "it\'s", "b": "\ud83d\ude00",}', {"a": "it's", "b": "😀"}),
        ("[[],[1],'x',]", [[], [1], "x"]),
        ("{a:1,'b':'x',}", {"a": 1, "b": "x"}),
    ],
)
def test_a_syntax_error_that_changes_no_value_is_accepted(text: str, value: Any) -> None:
    assert json.dumps(parse_lenient_json(text)) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{'a': 'it's'}", 'expected a comma or } after a value, found "s"'),
        ('{"a": "say "hi" now"}', 'found "h"'),
        ('{"a": 1 "b": 2}', "expected a comma"),
        ('{"a": 1, "a": 2}', '"a" is given twice'),
        ('{"a": 1,, "b": 2}', "expected a name"),
        ('{"a": 1,000}', "expected a name"),
        ('{"a": 007}', "expected a value"),
        ('{"a": 12abc}', "expected a value"),
        ('{"a": 5%}', "expected a value"),
        ('{"a": Oslo}', "strings need double quotes"),
        ('{"a": NaN}', "expected a value"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        (r'{"a": "\d+"}', "two ways"),
        (r"{'a': 'say \'hi\' now'}", "two ways"),
        (r'{"a": "\ud83d"}', "unpaired surrogate"),
        ("{“a”: “He said “hi” twice”}", "expected a comma"),
        ('{"a": [1, 2}', "expected a comma or ]"),
        ('{"a": "x', CUT),
        ('{"a": 1} and more', "there is more"),
        ("[" * 101 + "]" * 101, "100 levels"),
        ('{"a": ' * 100_000, "100 levels"),
        ("", CUT),
    ],
)
def test_ambiguous_text_is_an_error(text: str, words: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse_lenient_json(text)
    assert words in str(caught.value)


def test_python_tuples_triple_quotes_and_escapes_are_parsed() -> None:
    source = "{'a': (1, 2), 'b': '''it's \"so\"\n''', 'c': '\\x41\\d\\'', 'd': (1,)}"
    assert LenientJsonParser(source, python=True).value() == {"a": [1, 2], "b": 'it\'s "so"\n', "c": "A\\d'", "d": [1]}


@pytest.mark.parametrize("text", ['{"a": 1, # b": 2,\n"c": 3}', "[1, // it's\n2]", "['x', #y',\n'z']"])
def test_a_comment_with_a_quote_is_ambiguous(text: str) -> None:
    with pytest.raises(InvalidJson, match="a comment contains a quote"):
        parse_lenient_json(text)


@pytest.mark.parametrize("text", ['{"a": "x\n"}', "{'a': ['x\n']}"])
def test_a_string_that_ends_with_a_raw_line_break_is_ambiguous(text: str) -> None:
    with pytest.raises(InvalidJson, match="ends with a line break"):
        parse_lenient_json(text)
    assert parse_lenient_json(text.replace("\n", "\\n").replace("'", '"')) is not None


@pytest.mark.parametrize("quote", ['<|"|>', "<escape>", "<ctrl46>"])
def test_strings_may_stand_between_special_tokens(quote: str) -> None:
    def parse(text: str) -> Any:
        return LenientJsonParser(text.replace("Q", quote), tokens=True).value()

    assert parse('{"a": QOslo "x" \\n Q, b: QQ}') == {"a": 'Oslo "x" \\n ', "b": ""}
    for text in ("QOslo", "[Q"):
        with pytest.raises(InvalidJson, match=CUT):
            parse(text)
    for text in ("Q>OsloQ", "QOslo<Q", "<x>", "<", quote[:-1]):
        with pytest.raises(InvalidJson):
            parse(text)
    with pytest.raises(InvalidJson):
        LenientJsonParser(f"{quote}Oslo{quote}").value()


@pytest.mark.parametrize("text", ["tru", "[1, fals", "{a", "-", "1", "1e", "/* x", '{"a"', '"x'])
def test_a_value_that_may_go_on_is_incomplete(text: str) -> None:
    with pytest.raises(InvalidJson, match=CUT):
        LenientJsonParser(text).value()


@pytest.mark.parametrize("text", ["%", "/", "// x", '"\\u12"', '"\\x41"', '"\\q"', '"\\ud800"', "(1)", "(1, 2)", "1 2"])
def test_text_that_is_not_a_value_is_an_error(text: str) -> None:
    with pytest.raises(InvalidJson):
        parse_lenient_json(text)


def test_python_values_are_parsed_as_python_writes_them() -> None:
    def parse(text: str) -> Any:
        return LenientJsonParser(text + " ", python=True).value()

    assert LenientJsonParser("'a'", python=True).value() == "a"
    assert LenientJsonParser("''", python=True).value() == ""
    assert parse("True") is True
    assert parse("(1,)") == [1]
    assert parse("()") == []
    assert parse(r"'\x41\u0042\U00000043\d\/'") == r"ABC\d\/"
    for text in ("(1)", r"'\1'", r"'\N'"):
        with pytest.raises(InvalidJson):
            parse(text)


def test_lists_may_be_nested_a_hundred_levels_deep() -> None:
    deep = "[" * 99 + "]" * 99
    assert json.dumps(parse_lenient_json(f"[{'[],' * 9}{deep}]")) == json.dumps([*([[]] * 9), json.loads(deep)])
    with pytest.raises(InvalidJson, match="100 levels"):
        parse_lenient_json(f"[{'[],' * 9}[{deep}]]")


def test_an_error_quotes_what_stands_before_it() -> None:
    for text, message in (
        ("[%]", 'expected a value; strings need double quotes, found "%" after "["'),
        ("[" + "1," * 10 + "%]", 'expected a value; strings need double quotes, found "%" after "' + "1," * 10 + '"'),
        ('"\\u12"', "the escape \\u in a string can be read in two ways"),
        ('"\\x41"', "the escape \\x41 in a string can be read in two ways"),
    ):
        with pytest.raises(InvalidJson) as caught:
            parse_lenient_json(text)
        assert str(caught.value) == message
