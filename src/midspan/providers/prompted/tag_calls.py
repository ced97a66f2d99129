"""Calls written in tags: `<function=f><parameter=city>Oslo</parameter></function>` and its relatives.

Values in tags have no quotes, so the schema of the tool decides whether `5` is a number or a string. Where it allows
both, the call is unreadable.
"""

import re
from typing import Any

from msgspec import Struct

from midspan._schema.lenient_json import InvalidJson, loads
from midspan._schema.tree import type_of
from midspan._schema.type_aliases import schema_for_alias
from midspan.providers.prompted.arguments import read_object
from midspan.providers.prompted.scanner import MAX_CALL_CHARS, Incomplete, Scanner, WrittenCall

_MAX_HEAD_CHARS = 500
_MAX_DEPTH = 20
_KEY = r"([^\s<>=\"'/]{1,200})"


class TagStyle(Struct, frozen=True):
    """The tags of one model family."""

    parameter: re.Pattern[str]
    """The head of a parameter: its key and, for DeepSeek, whether its value is a string."""
    head_start: str
    head_end: str
    parameter_end: str
    inner_tag: re.Pattern[str]
    """Tags that cannot stand in a value. A value with such a tag has lost its end."""
    name: re.Pattern[str] | None = None
    """The rest of the opening tag of the call."""
    end: str = ""
    """The closing tag of the call."""
    has_lines: bool = False
    """Values stand on lines of their own."""


def _style(tag: str, attribute: str, prefix: str = "") -> TagStyle:
    quote = '"' if attribute != "=" else ""
    parameter = f"<{prefix}parameter{attribute}{quote}"
    return TagStyle(
        parameter=re.compile(rf"{re.escape(parameter)}{_KEY}{quote}(?:\s+string=\"(true|false)\")?>"),
        head_start=parameter,
        head_end=">",
        parameter_end=f"</{prefix}parameter>",
        inner_tag=re.compile(rf"</?{prefix}(?:parameter|{tag})\b"),
        name=re.compile(rf"{_KEY}{quote}>"),
        end=f"</{prefix}{tag}>",
        has_lines=attribute == "=",
    )


STYLES = {
    "<function=": _style("function", "="),
    '<invoke name="': _style("invoke", " name="),
    '<\uff5cDSML\uff5cinvoke name="': _style("invoke", " name=", "\uff5cDSML\uff5c"),
    '<steptml:invoke name="': _style("invoke", " name=", "steptml:"),
}
"""By the beginning of the opening tag."""
_GLM = TagStyle(
    parameter=re.compile(rf"<arg_key>\s?{_KEY}\s?</arg_key>\s*<arg_value>"),
    head_start="<arg_key>",
    head_end="<arg_value>",
    parameter_end="</arg_value>",
    inner_tag=re.compile(r"</?arg_(?:key|value)>|</?tool_call>"),
)


def read_tag_call(scanner: Scanner, start: str) -> WrittenCall | None:
    """Read the call whose opening tag begins with `start`, which was taken."""
    style = STYLES[start]
    assert style.name is not None, "only GLM's calls have no opening tag"
    head = style.name.match(scanner.text, scanner.at)
    if head is None:
        _wait_for(scanner, ">")
        return None
    scanner.at = head.end()
    tool = scanner.tools.resolve(head[1])
    scanner.tool = tool or ""
    scanner.space()
    arguments = read_object(scanner) if scanner.sees("{") else _read_parameters(scanner, style)
    scanner.expect(style.end)
    return WrittenCall(tool or head[1], arguments)


def read_glm_arguments(scanner: Scanner) -> dict[str, Any]:
    """Read `<arg_key>city</arg_key><arg_value>Oslo</arg_value>` up to the end mark of the call."""
    return _read_parameters(scanner, _GLM)


def _read_parameters(scanner: Scanner, style: TagStyle) -> dict[str, Any]:
    text, arguments = scanner.text, dict[str, Any]()
    properties = scanner.tools.properties(scanner.tool or "")
    schema = scanner.tools.schema(scanner.tool or "")
    while scanner.take_after_space(style.head_start):
        scanner.at -= len(style.head_start)
        head = style.parameter.match(text, scanner.at)
        if head is None:
            _wait_for(scanner, style.head_end)
            raise scanner.error("the tag of a parameter cannot be read")
        key, is_string = head[1], head[2] if style.parameter.groups > 1 else None
        end = text.find(style.parameter_end, head.end(), scanner.at + MAX_CALL_CHARS)
        if end < 0:
            raise Incomplete
        value = text[head.end() : end]
        if style.inner_tag.search(value) or value.startswith(">") or value.endswith("<"):
            raise scanner.error(f"the value of {key[:80]!r} contains a tag")
        if key in arguments or (properties and key not in properties):
            raise scanner.error(f"the parameter {key[:80]!r} is {'given twice' if key in arguments else 'unknown'}")
        if style.has_lines and len(value) > 1 and value[0] == value[-1] == "\n":
            value = value[1:-1]
        arguments[key] = _value(scanner, key, value, is_string, types_of(properties.get(key), schema))
        scanner.at = end + len(style.parameter_end)
    return arguments


def _wait_for(scanner: Scanner, sign: str) -> None:
    """Raise `Incomplete` if the tag that stands here may still become readable."""
    head = scanner.text[scanner.at : scanner.at + _MAX_HEAD_CHARS]
    if not scanner.is_final and sign not in head and len(head) < _MAX_HEAD_CHARS:
        raise Incomplete


def _value(scanner: Scanner, key: str, text: str, is_string: str | None, types: set[str]) -> Any:
    """Return what the text between the tags means: the text itself, or the JSON in it."""
    if is_string == "true" or (types == {"string"} and text not in ("null", "None")) or not scanner.tool:
        return text
    try:
        value = loads(text)
    except InvalidJson:
        must_be_json = is_string or (types and "string" not in types)
        if must_be_json or (not types and text.lstrip()[:1] in ("{", "[")):
            raise scanner.error(f"{text[:80]!r} is not a valid value of {key[:80]!r}") from None
        return text
    if is_string or (types and "string" not in types):
        return value
    if not types or isinstance(value, str) or value is None or _fits(value, types):
        raise scanner.error(f"{text[:80]!r} for {key[:80]!r} may be a string or a value; write the arguments as JSON")
    return text


def _fits(value: Any, types: set[str]) -> bool:
    return type_of(value) in types or (type_of(value) == "integer" and "number" in types)


def types_of(schema: Any, root: Any = None, *, depth: int = 0) -> set[str]:
    """Return the types that a schema allows; an empty set if it does not say. `root` is what references refer to."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return set()
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        return types_of(target, root, depth=depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(keyword), list):
            branches = [types_of(branch, root, depth=depth + 1) for branch in schema[keyword]]
            if keyword == "allOf":
                return next((types for types in branches if types), set())
            return set().union(*branches) if all(branches) else set()
    if "type" not in schema:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        return {type_of(value) for value in values} if isinstance(values, list) else set()
    words = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    aliases = [schema_for_alias(word) or {} if isinstance(word, str) else {} for word in words]
    known = [alias.get("type") or [] for alias in aliases]
    return {name for names in known for name in ([names] if isinstance(names, str) else names)} if all(known) else set()
