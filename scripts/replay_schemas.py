"""Replay real schemas: `python scripts/replay_schemas.py FILE…`, each a .jsonl of declarations, calls or suites.

What a file is follows from the shape of its rows: tool declarations (`schema`), Berkeley function-calling rows
(`functions`, `calls`), groups of the JSON Schema test suite (`schema`, `tests`). Exits 1 if anything fails.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from row_files import Tally, lines_of

from midspan._schema.adapt import adapt_schema
from midspan._schema.arguments import SchemaValidator
from midspan._schema.dialect import valid_names
from midspan._schema.normalize import normalize
from midspan.errors import SchemaError
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS

ROOT = Path(__file__).resolve().parent.parent

Row = dict[str, Any]

LEAST_VALID_CALLS = 0.98
_DRAFTS = {
    **{number: f"http://json-schema.org/draft-0{number}/schema#" for number in ("4", "6", "7")},
    **{year: f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")},
}
_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PROPERTY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OPENAPI_TYPES = frozenset(["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"])
_OPENAPI_FIELDS = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "default",
        "example",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "propertyOrdering",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "anyOf",
    ]
)
_JSON_FIELDS = frozenset(
    [
        "$id",
        "$defs",
        "$ref",
        "$anchor",
        "type",
        "format",
        "title",
        "description",
        "enum",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "anyOf",
        "oneOf",
        "properties",
        "additionalProperties",
        "required",
        "propertyOrdering",
    ]
)


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    tally = Tally()
    for name in files:
        replay(Path(name), tally)
    check_rate(tally)
    counted = " ".join(f"{name}={count}" for name, count in sorted(tally.counts.items()))
    print(f"{counted} failures={tally.failed}")
    return 1 if tally.failed else 0


def replay(file: Path, tally: Tally) -> None:
    for place, line in lines_of(file, tally.fail):
        replay_line(line, place, file, tally)


def replay_line(line: bytes, place: str, file: Path, tally: Tally) -> None:
    """Replay one row. An error in it is reported with its line, and the next row follows."""
    tally.counts["rows"] += 1
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        tally.fail(f"{place}: not JSON: {error}")
        return
    if not isinstance(row, dict):
        tally.fail(f"{place}: a row is an object, and this is {line[:80].decode(errors='replace')}")
        return
    try:
        replay_row({"id": place, **row}, place, file, tally)
    except Exception as error:  # noqa: BLE001 - no row may end the script
        tally.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")


def replay_row(row: Row, place: str, file: Path, tally: Tally) -> None:
    if "tests" in row:
        replay_group(row, file, tally)
    elif "functions" in row:
        replay_functions(row, file, tally)
    elif "schema" in row and "name" in row:
        replay_declarations(row["id"], [{"name": row["name"], "parameters": row["schema"]}], tally)
    else:
        tally.fail(f"{place}: a row of no known shape, its keys are {', '.join(row)}")


def replay_group(row: Row, file: Path, tally: Tally) -> None:
    documents = helper(file, "json_schema_remotes.json") if row.get("needs_remote") else {}
    remotes = {uri.rstrip("#"): document for uri, document in documents.items()}
    schema = row["schema"]
    if isinstance(schema, dict):
        schema = {"$schema": draft_uri(row["draft"]), **schema}
    for test in row["tests"]:
        tally.counts["suite_tests"] += 1
        try:
            validator = SchemaValidator(
                schema, check_formats=row.get("optional", False), retrieve=lambda uri: remotes[uri.rstrip("#")]
            )
            problems = validator.problems(test["data"])
        except SchemaError as error:
            tally.fail(f"{row['id']} {test['description']}: {error}")
            continue
        if bool(problems) == test["valid"]:
            tally.fail(
                f"{row['id']} {test['description']}: {[str(problem) for problem in problems] or 'no problem found'}"
            )


def draft_uri(draft: object) -> str:
    """Return the URI of a draft, which is written as "7", "draft7" or "draft-07"."""
    name = str(draft).lower().removeprefix("draft").removeprefix("-").removeprefix("0")
    if name not in _DRAFTS:
        raise ValueError(f"unknown draft {draft!r}")
    return _DRAFTS[name]


def replay_functions(row: Row, file: Path, tally: Tally) -> None:
    functions = row["functions"]
    if row.get("functions_ref"):
        known = helper(file, "bfcl_multi_turn_functions.json")
        functions = [*functions, *(function for name in row["functions_ref"] for function in known[name])]
    validators = replay_declarations(row["id"], functions, tally)
    parameters = {function["name"]: function.get("parameters") or {} for function in functions}
    for call in calls_of(row):
        replay_call(row["id"], call, parameters.get(call["name"]), validators.get(call["name"]), tally)


def replay_declarations(row_id: str, declarations: list[Row], tally: Tally) -> dict[str, SchemaValidator]:
    """Check that every declaration is accepted, and that the API accepts its adapted schemas."""
    validators = {}
    for original, legal in valid_names(
        [declaration["name"] for declaration in declarations], GEMINI_PARAMETERS.functions
    ).items():
        if not _FUNCTION_NAME.fullmatch(legal):
            tally.fail(f"{row_id}: {original!r} became the illegal name {legal!r}")
    for declaration in declarations:
        tally.counts["declarations"] += 1
        try:
            validators[declaration["name"]] = replay_schema(row_id, declaration, tally)
        except SchemaError as error:
            tally.fail(f"{row_id} {declaration['name']}: {error}")
    return validators


def replay_schema(row_id: str, declaration: Row, tally: Tally) -> SchemaValidator:
    schema = declaration.get("parameters") or {"type": "object"}
    for label, dialect, check in (
        ("parameters", GEMINI_PARAMETERS, openapi_errors),
        ("parametersJsonSchema", GEMINI_JSON_SCHEMA, json_schema_errors),
    ):
        adapted = adapt_schema(schema, dialect)
        tally.counts["adapted"] += 1
        for error in root_errors(adapted.schema, check):
            tally.fail(f"{row_id} {declaration['name']} as {label}: {error}")
    return SchemaValidator(normalize(schema))


Check = Callable[[Any, str], Iterator[str]]


def root_errors(schema: Row, check: Check) -> Iterator[str]:
    if schema.get("type") not in ("OBJECT", "object"):
        yield f"the root is of type {schema.get('type')!r}"
    yield from check(schema, "")


def openapi_errors(schema: Any, path: str) -> Iterator[str]:
    """Yield what the server rejects in `parameters`."""
    if not isinstance(schema, dict):
        yield f"{path}: {schema!r} is not a schema"
        return
    for unknown in schema.keys() - _OPENAPI_FIELDS:
        yield f"{path}: Unknown name {unknown!r}: Cannot find field"
    if "anyOf" in schema:
        if schema.keys() != {"anyOf"}:
            yield f"{path}: when using any_of, it must be the only field set"
    elif schema.get("type") not in _OPENAPI_TYPES:
        yield f"{path}: type {schema.get('type')!r}"
    if schema.get("type") == "ARRAY" and "items" not in schema:
        yield f"{path}.items: missing field"
    if "enum" in schema:
        if schema.get("type") != "STRING" or not schema["enum"]:
            yield f"{path}.enum: only for STRING, and not empty"
        if not all(isinstance(value, str) and value for value in schema["enum"]):
            yield f"{path}.enum: {schema['enum']!r} are not all non-empty strings"
    if schema.get("type") == "STRING" and schema.get("format", "date-time") not in ("date-time", "enum"):
        yield f"{path}.format: only 'enum' and 'date-time' are supported for STRING type"
    yield from shared_errors(schema, path, openapi_errors)


def json_schema_errors(schema: Any, path: str) -> Iterator[str]:
    """Yield what `parametersJsonSchema` ignores or cannot be."""
    if isinstance(schema, bool):
        if not path.endswith("additionalProperties"):
            yield f"{path}: a boolean"
        return
    for unknown in schema.keys() - _JSON_FIELDS:
        yield f"{path}: {unknown!r} is ignored"
    if "enum" in schema and not all(type(value) in (str, int, float) and value != "" for value in schema["enum"]):
        yield f"{path}.enum: {schema['enum']!r} are not all strings and numbers"
    types = schema.get("type", [])
    if isinstance(types, list) and len(set(types)) < len(types):
        yield f"{path}: the types {types!r}"
    for name in types if isinstance(types, list) else [types]:
        if name.upper() not in _OPENAPI_TYPES or name != name.lower():
            yield f"{path}: type {name!r}"
    yield from shared_errors(schema, path, json_schema_errors)


def shared_errors(schema: Row, path: str, check: Check) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        if not _PROPERTY_NAME.fullmatch(name):
            yield f"{path}: property name {name!r}"
        yield from check(inner, f"{path}.{name}")
    for name in schema.get("required", ()):
        if name not in properties:
            yield f"{path}.required: {name!r} is not defined"
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from check(schema[keyword], f"{path}.{keyword}")
    for keyword in ("anyOf", "prefixItems"):
        for at, inner in enumerate(schema.get(keyword, ())):
            yield from check(inner, f"{path}.{keyword}[{at}]")


def calls_of(row: Row) -> Iterator[Row]:
    """Yield the correct calls of a row; it may have none, or only the results of tools (`raw`)."""
    turns = row.get("calls") or []
    for turn in turns:
        for call in turn if isinstance(turn, list) else [turn]:
            if isinstance(call, dict) and "name" in call:
                yield call


def replay_call(
    row_id: str, call: Row, parameters: Row | None, validator: SchemaValidator | None, tally: Tally
) -> None:
    tally.counts["calls"] += 1
    if validator is None or parameters is None:
        print(f"INVALID CALL {row_id} {call['name']}: no such declaration")
        return
    validated = validator.validate(arguments_of(call, parameters))
    tally.counts["calls_coerced"] += bool(validated.changes)
    if validated.problems:
        print(f"INVALID CALL {row_id} {call['name']}: {'; '.join(map(str, validated.problems))}")
    else:
        tally.counts["calls_valid"] += 1


def arguments_of(call: Row, parameters: Row) -> Row:
    """Return the arguments of a correct call: for each argument, the first acceptable value."""
    if call.get("acceptable_args") is not None:
        required = parameters.get("required")
        return chosen(call["acceptable_args"], required if isinstance(required, list) else ())
    names = list(parameters.get("properties") or {})
    return {**dict(zip(names, call.get("positional") or (), strict=False)), **(call.get("args") or {})}


def chosen(acceptable: Row, required: Sequence[str] = ()) -> Row:
    """Return the first acceptable value of each argument; `""` means that an optional argument may be omitted."""
    result = {}
    for name, values in acceptable.items():
        listed = values if isinstance(values, list) else [values]
        candidates = [value for value in listed if value != ""] or [value for value in listed if name in required]
        if candidates:
            result[name] = first_of(candidates[0])
    return result


def first_of(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(item, list) for item in value.values()):
        return chosen(value)
    return [first_of(item) for item in value] if isinstance(value, list) else value


def check_rate(tally: Tally) -> None:
    calls = tally.counts["calls"]
    if not calls:
        return
    rate = tally.counts["calls_valid"] / calls
    print(f"valid calls: {rate:.2%} of {calls}")
    if rate < LEAST_VALID_CALLS:
        tally.fail(f"less than {LEAST_VALID_CALLS:.0%} of the calls are valid")


_helpers: dict[Path, Any] = {}


def helper(file: Path, name: str) -> Any:
    """Return a document that rows refer to, from the folder of their file or from the shared data."""
    for folder in (file.resolve().parent, ROOT.parent / "shared" / "data"):
        path = folder / name
        if path not in _helpers and path.is_file():
            _helpers[path] = json.loads(path.read_text(encoding="utf-8"))
        if path in _helpers:
            return _helpers[path]
    raise FileNotFoundError(f"{name} is neither beside {file} nor in ../shared/data")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
