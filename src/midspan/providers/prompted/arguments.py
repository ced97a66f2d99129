"""Reads the arguments of calls: objects, keywords in parentheses, and parameters in tags.

Nothing is guessed. A call whose arguments end too early is not run with a part of them: text that follows a call and
could be one of its arguments makes the call unreadable.
"""

import re
from typing import Any

from midspan._schema.lenient_json import CUT, TOKEN_QUOTES, InvalidJson, LenientJsonParser, parse_lenient_json
from midspan._schema.tree import ANYTHING, SchemaNode, type_of
from midspan._types.parts import ToolCall
from midspan.providers.prompted.scanner import Scanner, Unreadable

_KEYWORD = re.compile(r"[^\W\d][\w-]{0,199}\s{0,20}[=:](?!=)")
_CLOSING = re.compile(r"\s*(?:,\s*)?\)")
_LINE_REST = re.compile(r"[ \t*`\]>.;]*(?=[\r\n]|\Z)")


def read_object(scanner: Scanner, *, tokens: bool = False) -> dict[str, Any]:
    """Read the object in braces at the current position; with `tokens`, strings may be quoted by special tokens."""
    scanner.skip_space()
    if not scanner.peek("{"):
        raise Unreadable("its arguments are not an object in braces")
    members: dict[str, Any] = scanner.read_value(tokens=tokens)
    return members


def read_parentheses(scanner: Scanner, *, keywords_only: bool = False) -> dict[str, Any]:
    """Read the arguments from the opening parenthesis to the closing one: keywords, or an object."""
    scanner.at += 1
    scanner.skip_space()
    if keywords_only or not scanner.peek("{"):
        keywords: dict[str, Any] = scanner.read_value(_keywords, python=True)
        check_names(scanner, keywords)
        return keywords
    arguments = read_object(scanner)
    # The parenthesis may be missing where nothing else follows on the line.
    if not scanner.match(_CLOSING) and not _LINE_REST.match(scanner.text, scanner.at):
        raise Unreadable("expected ) or the end of the line after the object of the arguments")
    return arguments


def _keywords(parser: LenientJsonParser) -> dict[str, Any]:
    if parser.peek() != ")" and not _KEYWORD.match(parser.text, parser.at):
        raise InvalidJson('the arguments have no names; write them as an object: {"name": value}')
    return parser.members(")", "=:")


def check_names(scanner: Scanner, arguments: dict[str, Any]) -> None:
    """Check names that were written without quotes: in `days1=2` a digit of the value may have moved into the name."""
    name = _damaged_name(arguments, scanner.tools.schema(scanner.tool))
    if name is not None:
        raise Unreadable(f"the tool has no parameter {name[:80]!r}")


def _damaged_name(value: Any, node: SchemaNode) -> str | None:
    """Return a name that the schema does not declare and that begins with a declared one."""
    inner: list[tuple[Any, SchemaNode]] = []
    if isinstance(value, list):
        inner = [(item, part.item(index)) for part in node.flattened_without_null for index, item in enumerate(value)]
    elif isinstance(value, dict):
        declared = node.all_properties
        for key, item in value.items():
            if key not in declared and any(key.startswith(name) for name in declared if name):
                return str(key)
            inner.append((item, declared.get(key, ANYTHING)))
    return next((name for item, part in inner if (name := _damaged_name(item, part)) is not None), None)


_TAG_NAME = r"[^\s<>=\"'/]{1,200}"
TAGS = {
    "<function=": "</function>",
    '<invoke name="': "</invoke>",
    '<\uff5cDSML\uff5cinvoke name="': "</\uff5cDSML\uff5cinvoke>",
}
"""The closing tag of a call, by the beginning of the opening one."""
_TAG_REST = re.compile(rf"({_TAG_NAME})\"?>")
# DeepSeek says whether the value is a string.
_PARAMETER = re.compile(
    rf"\s*+<(?P<tag>(?:\uff5cDSML\uff5c)?parameter)(?:=| name=(?P<quote>\"))(?P<key>{_TAG_NAME})"
    r"(?(quote)\"(?:\s+string=\"(?P<is_string>true|false)\")?)>"
)
_GLM_PARAMETER = re.compile(rf"\s*+<arg_key>\s?(?P<key>{_TAG_NAME})\s?</arg_key>\s*<(?P<tag>arg_value)>")
_INNER_TAG = re.compile("</?(?:(?:\uff5cDSML\uff5c)?(?:parameter|function|invoke)|arg_key|arg_value|tool_call)\\b")
_STRAY_PARAMETER = re.compile("(?:<?[^<]{0,200}</|[,;\\s]*+<)(?:\uff5cDSML\uff5c)?(?:parameter|arg_)")
"""The beginning of a parameter, or a damaged one up to its closing tag."""


def read_tag_call(scanner: Scanner, start: str) -> ToolCall | None:
    """Read the call whose opening tag begins with `start`, which was taken."""
    head = scanner.match(_TAG_REST)
    if head is None:
        return None
    name = scanner.set_tool(head[1])
    scanner.skip_space()
    arguments = read_object(scanner) if scanner.peek("{") else read_parameters(scanner)
    scanner.expect(TAGS[start])
    return ToolCall("", name, arguments)


def read_parameters(scanner: Scanner) -> dict[str, Any]:
    """Read parameters in tags. Their values have no quotes: the schema says whether `5` is a number or a string."""
    arguments: dict[str, Any] = {}
    properties = scanner.tools.schema(scanner.tool).all_properties
    while head := scanner.match(_PARAMETER) or scanner.match(_GLM_PARAMETER):
        key, end_tag = head["key"], f"</{head['tag']}>"
        end = scanner.text.find(end_tag, scanner.at)
        if end == -1:
            raise Unreadable(CUT)
        value = scanner.text[scanner.at : end]
        if _INNER_TAG.search(value) or value.startswith(">") or value.endswith("<"):
            raise Unreadable(f"the value of {key[:80]!r} contains a tag")  # the closing tag is missing
        if key in arguments or (properties and key not in properties):
            raise Unreadable(f"the parameter {key[:80]!r} is {'given twice' if key in arguments else 'unknown'}")
        if head[0].lstrip().startswith("<parameter=") and len(value) > 1 and value[0] == value[-1] == "\n":
            value = value[1:-1]
        types = properties.get(key, ANYTHING).types
        is_string = head.groupdict().get("is_string")
        arguments[key] = _tag_value(key, value, is_string, types) if scanner.tool in scanner.tools.specs else value
        scanner.at = end + len(end_tag)
    return arguments


def _tag_value(key: str, text: str, is_string: str | None, types: frozenset[str]) -> Any:
    """Return the text between the tags, or the JSON in it. `is_string` is what the tag says: true, false or nothing."""
    if is_string == "true" or (types == {"string"} and text not in ("null", "None")):
        return text
    may_be_string = "string" in types and not is_string
    try:
        value = parse_lenient_json(text)
    except InvalidJson:
        if not may_be_string or (text.lstrip().startswith(("{", "[")) and types & {"object", "array"}):
            raise Unreadable(f"{text[:80]!r} is not a valid value of {key[:80]!r}") from None
        return text
    if not may_be_string:
        return value
    if isinstance(value, str) or value is None or type_of(value) in types:
        raise Unreadable(f"{text[:80]!r} for {key[:80]!r} may be text or JSON; write the arguments as JSON")
    return text


_DECORATION = r"[ \t]*+(?:[*`_\])>.]++[ \t]*+)*+"
_STRAY_AFTER_PARENTHESES = re.compile(rf"\(|{_DECORATION}[{{}}]")
_STRAY_AFTER_OBJECT = re.compile(r"[^\S\r\n]*+[^\s<\[*`.,;]|\s*+[\"'“”]?\s{0,16}[)}\]]")
_ANY_MEMBER = r"\s{0,16}(?:[\"'“”][^\"'“”\n]{0,99}|[^\W\d][\w$.-]{0,63})[\"'“”]?\s{0,8}[:=](?!=)"
_FIRST_MEMBER = re.compile(rf"{_DECORATION}\s*+[,;]?{_ANY_MEMBER}")
_NEXT_MEMBER = re.compile(rf"\s*+,{_ANY_MEMBER}")
_CLOSING_BRACKET = re.compile(r"\s*+(?:,\s*+)?[)}\]]")


def reject_more_arguments(scanner: Scanner, *, in_parentheses: bool = False) -> None:
    """Raise `Unreadable` if the text after a call could belong to it: brackets, members, and parameters in tags.

    After an object without parentheses, that includes any words on the same line.
    """
    reject_more_parameters(scanner)
    stray = _STRAY_AFTER_PARENTHESES if in_parentheses else _STRAY_AFTER_OBJECT
    if stray.match(scanner.text, scanner.at) or _has_members(scanner.text, scanner.at, python=in_parentheses):
        raise Unreadable("the text after the call could belong to its arguments")


def reject_more_parameters(scanner: Scanner) -> None:
    """Raise `Unreadable` if a parameter in tags follows the call: a damaged tag has ended the call too early."""
    if _STRAY_PARAMETER.match(scanner.text, scanner.at):
        raise Unreadable("the tags of a parameter after it cannot be read")


def _has_members(text: str, at: int, *, python: bool) -> bool:
    """Whether members begin here that end with a bracket, as in `, "dry_run": true}`."""
    member = _FIRST_MEMBER.match(text, at)
    while member is not None:
        if text.startswith(TOKEN_QUOTES, member.end()):
            return True
        parser = LenientJsonParser(text, member.end(), python=python)
        try:
            parser.value()
        except InvalidJson:
            return False
        if _CLOSING_BRACKET.match(text, parser.at):
            return True
        member = _NEXT_MEMBER.match(text, parser.at)
    return False
