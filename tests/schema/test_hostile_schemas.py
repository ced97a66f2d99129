"""Hostile schemas: a clear error or an answer with bounded work, and nothing is ever fetched."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import pytest

from midspan import tool
from midspan._schema.adapt import adapt_schema
from midspan._schema.arguments import SchemaValidator
from midspan._schema.dialect import SchemaDialect
from midspan._schema.normalize import normalize, normalize_tree
from midspan.errors import SchemaError
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from tests.bounds import BOUND
from tests.schema.work import bounded_work

Schema = dict[str, Any]
BOTH = pytest.mark.parametrize("dialect", [GEMINI_PARAMETERS, GEMINI_JSON_SCHEMA], ids=["parameters", "json schema"])
LARGEST_ANSWER = 500_000


@pytest.fixture(autouse=True)
def _bounded_work() -> Iterator[None]:
    with bounded_work():
        yield


def nested(wrap: Callable[[Any], Any], levels: int) -> Any:
    inner: Any = {"type": "string"}
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def fan(wrap: Callable[[Schema], Schema], levels: int = 20) -> Schema:
    """Definitions that refer to the next one, by a wrap that may do so many times."""
    definitions = {f"a{level}": wrap({"$ref": f"#/$defs/a{level + 1}"}) for level in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "object"}}}


HOSTILE: dict[str, Schema] = {
    "ten thousand arrays deep": nested(lambda inner: {"items": inner}, 10_000),
    "ten thousand objects deep": nested(lambda inner: {"properties": {"a": inner}}, 10_000),
    "ten thousand unions deep": nested(lambda inner: {"anyOf": [inner]}, 10_000),
    "a deep default": {"default": nested(lambda inner: [inner], 10_000)},
    "itself": {"$ref": "#"},
    "itself twice": {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "ten to the twentieth conditions": fan(lambda next_one: {"allOf": [next_one] * 10}),
    "ten to the twentieth alternatives": fan(lambda next_one: {"anyOf": [next_one] * 10}),
    "ten to the twentieth properties": fan(lambda next_one: {"properties": {f"p{at}": next_one for at in range(10)}}),
    "five thousand references in a row": fan(lambda next_one: next_one, 5000),
    "everybody refers to everybody": {
        "$ref": "#/$defs/a0",
        "$defs": {
            f"a{one}": {"properties": {f"p{other}": {"$ref": f"#/$defs/a{other}"} for other in range(12)}}
            for one in range(12)
        },
    },
    "ten thousand properties": {"properties": {f"p {at}": {} for at in range(10_000)}},
    "thirty thousand values": {"properties": {"a": {"allOf": [{"enum": list(range(15_000))}] * 2}}},
}
EACH = pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())


@EACH
@BOTH
def test_adapting_a_hostile_schema_is_bounded(schema: Schema, dialect: SchemaDialect) -> None:
    with allow_clear_error():
        assert len(json.dumps(adapt_schema(schema, dialect).schema)) < LARGEST_ANSWER


@EACH
def test_validating_against_a_hostile_schema_is_bounded(schema: Schema) -> None:
    value: Any = 1
    for _ in range(30):
        value = {"a": value, "p0": value if not isinstance(value, dict) else 2}
    with allow_clear_error():
        assert len(SchemaValidator(normalize(schema)).validate(value).problems) <= 21


@contextmanager
def allow_clear_error() -> Iterator[None]:
    """Accept an answer, or a short error."""
    try:
        yield
    except SchemaError as error:
        if len(str(error)) > 300:
            raise


def test_a_python_object_that_contains_itself_is_an_error() -> None:
    schema: Schema = {}
    schema["properties"] = {"a": schema}
    with pytest.raises(SchemaError, match="nested"):
        adapt_schema(schema, GEMINI_PARAMETERS)
    with pytest.raises(SchemaError, match="nested"):
        SchemaValidator(schema)


LIST_OF_LISTS = {
    "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}},
    "properties": {"a": {"$ref": "#/$defs/l"}},
}


@pytest.mark.parametrize("levels", [500, 100_000])
def test_a_deeply_nested_value_is_a_problem_and_not_a_crash(levels: int) -> None:
    value: Any = []
    for _ in range(levels):
        value = [value]
    for schema in (
        LIST_OF_LISTS,
        {"properties": {"a": {"type": "string"}}},
        {"properties": {"a": {"uniqueItems": True}}},
    ):
        found = SchemaValidator(schema).validate({"a": value}).problems
        assert "nested more than" in str(found[0])
    assert SchemaValidator({"type": "string"}).problems(value)
    endless: list[Any] = []
    endless.append(endless)
    assert SchemaValidator(LIST_OF_LISTS).validate({"a": endless}).problems


def test_problems_in_nested_unions_are_found_with_bounded_work() -> None:
    node = {
        "anyOf": [
            {"properties": {"next": {"$ref": "#/$defs/n"}, "kind": {"const": kind}}, "required": ["kind"]}
            for kind in ("a", "b", "c")
        ]
    }
    checker = SchemaValidator({"properties": {"root": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}})
    value: Any = {"kind": "x"}
    for _ in range(30):
        value = {"kind": "a", "next": value}
    found = checker.validate({"root": value}).problems
    assert found
    assert found[0].path.startswith("root")


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|aa)+(?=$)(?!a)x", r"^(\w+\s?)*(?<=x)$", "(a|a?)+(?!z)b$", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_pattern_with_exponential_backtracking_is_bounded(pattern: str) -> None:
    checker = SchemaValidator({"properties": {"a": {"type": "string", "pattern": pattern}}})
    assert [problem.path for problem in checker.validate({"a": "a" * 5_000 + "!"}).problems] == ["a"]


@pytest.mark.parametrize("pattern", ["(?=a)(a+)+$", "^x|(?=a)a+$", "^[|]|(?=a)a+$"])
@pytest.mark.parametrize("others", [{}, {"if": {}}, {"if": {}, "not": {"enum": ["c"]}, "allOf": [{}]}])
def test_a_pattern_that_takes_quadratic_time_is_matched_with_short_texts_only(pattern: str, others: Schema) -> None:
    limited = {"pattern": pattern, **others}
    checker = SchemaValidator({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": limited}})
    long = "a" * 300_000 + "!"
    for text in (long, "a" * 10_001):
        (problem,) = checker.validate({"a": text}).problems
        assert (problem.path, problem.message[:35]) == ("a", "expected at most 10000 characters, ")
        assert not checker.accepts({"a": text})
    assert {problem.path for problem in checker.validate({"a": "c"}).problems} == {"a"}
    assert not checker.validate({"a": "a", "b": long, long: [long]}).problems
    assert checker.validate({"a": "a", 5: None}).problems


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"patternProperties": {"^x|(?=a)a+$": {"type": "integer"}}}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"pattern": "(?=a)a+$"}}},
        {"$schema": "http://json-schema.org/draft-06/schema#", "properties": {"a": {"pattern": "(?=a)a+$"}}},
    ],
)
def test_a_pattern_that_takes_quadratic_time_is_an_error_where_texts_cannot_be_limited(schema: Schema) -> None:
    with pytest.raises(SchemaError, match=r"pattern.* takes quadratic time; begin it with \^"):
        SchemaValidator(schema)


def test_only_patterns_that_take_quadratic_time_limit_the_length_of_texts() -> None:
    checker = SchemaValidator({"properties": {"a": {"type": "string", "pattern": "(?=a)(a+)+$"}}})
    assert not checker.validate({"a": "baa"}).problems
    (problem,) = checker.validate({"a": "b"}).problems
    assert problem.message == 'expected text that matches the pattern "(?=a)(a+)+$", got "b"'
    for pattern in ("^(?!/etc|/root)", "a|b", r"^\((?!x)"):
        assert SchemaValidator({"properties": {"a": {"pattern": pattern}}}).accepts({"a": "(a" * 10_000})


def test_a_pattern_limits_only_the_text_that_it_is_for() -> None:
    def write_file(path: Annotated[str, msgspec.Meta(pattern=r"(?<!\.)\.txt$")], content: str) -> None: ...

    parameters = tool(write_file).parameters
    assert not parameters.validate({"path": "a.txt", "content": "x" * 12_000}).problems
    assert [problem.path for problem in parameters.validate({"path": "x" * 12_000, "content": ""}).problems] == ["path"]


def test_every_problem_of_a_schema_that_is_not_recursive_is_listed() -> None:
    variants = [{"type": "object", "properties": {"kind": {"const": at}}} for at in range(8)]
    row = {"type": "object", "properties": {"a": {"anyOf": variants}, "b": {"type": "integer"}}}
    checker = SchemaValidator({"properties": {"x": {"properties": {"rows": {"items": row}}}}})
    rows = [{"a": {"kind": 1}, "b": "many"} for _ in range(10)]
    found = checker.problems({"x": {"rows": rows}})
    assert [problem.path for problem in found] == [f"x.rows[{at}].b" for at in range(10)]


def test_a_pattern_too_large_to_compile_is_an_error() -> None:
    with pytest.raises(SchemaError, match="invalid parameters schema"):
        SchemaValidator({"pattern": "((a{1000}){1000}){1000}"})


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """The URL of a loopback server, and a list of its connections."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        def listen() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    heard.append("a connection")
                    connection.close()
            except OSError:
                pass

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(BOUND)


def test_nothing_is_ever_fetched(listener: tuple[str, list[str]], tmp_path: Any) -> None:
    address, heard = listener
    secret = tmp_path / "secret.json"
    secret.write_text('{"type": "integer"}')
    for reference in (f"{address}/schema.json", f"{address}/schema.json#/$defs/a", secret.as_uri()):
        for schema in (
            {"type": "object", "properties": {"a": {"$ref": reference}}},
            {"$id": reference, "type": "object", "properties": {"a": {"$ref": "other.json"}}},
            {"$schema": reference, "type": "object", "properties": {"a": {"$dynamicRef": reference}}},
        ):
            with pytest.raises(SchemaError):
                SchemaValidator(schema)
            lowered = adapt_schema(schema, GEMINI_JSON_SCHEMA)
            assert lowered.schema["properties"] == {"a": {}}
    without_reference = normalize_tree({"properties": {"a": {"$ref": secret.as_uri()}}}).root.schema
    assert SchemaValidator(without_reference).validate({"a": "x"}).problems == ()
    assert heard == []
