"""The arguments of a call, as JSON, Python keywords or tags; and whether the text after them could belong to them.

Nothing is guessed. A call whose arguments end too early is not run with a part of them: text that follows a call and
could be one of its arguments makes the call unreadable.
"""

import json
import re
from typing import Any

from msgspec import Struct

from midspan._schema.lenient_json import IncompleteJson, InvalidJson, LenientJsonParser, loads
from midspan._schema.tree import ANYTHING, SchemaNode, type_of
from midspan.providers.prompted.scanner import (
    LOOKAHEAD,
    MAX_CALL_CHARS,
    SPACE,
    Incomplete,
    Scanner,
    Unreadable,
    WrittenCall,
    properties_of,
    skip,
)

_NO_NAMES = 'the arguments have no names; write them as an object: {"name": value}'
_NO_OBJECT = "its arguments are not an object in braces"

_MAX_KEYWORD_CHARS = 300
_KEYWORD = re.compile(r"[^\W\d][\w-]{0,199}\s{0,20}[=:](?!=)")
_BEFORE_CLOSING = re.compile(r"\s*(?:,\s*)?")
_SAME_LINE = re.compile(r"[ \t]*")
_LINE_REST = re.compile(r"[ \t*`\]>.;]*")


def read_object(scanner: Scanner) -> dict[str, Any]:
    """Read the object in braces that stands here."""
    scanner.space()
    if not scanner.sees("{"):
        raise Unreadable(_NO_OBJECT)
    return scanner.parse(lambda parser: parser.value())


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the object that a string contains, as some models write it."""
    try:
        value = loads(text)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None


def read_parentheses(scanner: Scanner, *, python: bool = False) -> dict[str, Any]:
    """Read the arguments from the opening parenthesis to the closing one."""
    scanner.at += 1
    first = scanner.text[(at := skip(SPACE, scanner.text, scanner.at)) : at + 1]
    has_keywords = first not in ("{", '"', "'")
    if has_keywords:
        scanner.look(at + _MAX_KEYWORD_CHARS)
    arguments = scanner.parse(lambda parser: _arguments(parser, python=python), python=python)
    if has_keywords:
        check_names(scanner, arguments)
    return arguments


def check_names(scanner: Scanner, arguments: dict[str, Any]) -> None:
    """Check names that were written without quotes: in `days1=2` a digit of the value may have moved into the name."""
    name = _damaged_name(arguments, scanner.tools.schema(scanner.tool))
    if name is not None:
        raise Unreadable(f"it has no parameter {name[:80]!r}")


def _damaged_name(value: Any, node: SchemaNode) -> str | None:
    """Return a name that the schema does not declare and that begins with a declared one."""
    inner: list[tuple[Any, SchemaNode]] = []
    if isinstance(value, list):
        inner = [(item, part.item(index)) for part in node.applying for index, item in enumerate(value)]
    elif isinstance(value, dict):
        declared = properties_of(node)
        for key, item in value.items():
            if key not in declared and any(key.startswith(name) for name in declared if name):
                return str(key)
            inner.append((item, declared.get(key, ANYTHING)))
    return next((name for item, part in inner if (name := _damaged_name(item, part)) is not None), None)


def _arguments(parser: LenientJsonParser, *, python: bool) -> dict[str, Any]:
    first = parser.peek()
    if first == "{" and not python:
        value: dict[str, Any] = parser.value(closed_by=")")
        if parser.lacks_brace and _last_string(value).endswith(("}", "]")):
            raise parser.unexpected("} before the parenthesis")  # it may be the one in the last string
        _close(parser)
        return value
    if first in "\"'" and not python:
        return _quoted(parser)
    if first != ")" and not _KEYWORD.match(parser.text, parser.at):
        raise InvalidJson(_NO_NAMES, parser.at)
    keywords = LenientJsonParser(parser.text, parser.at, python=True)
    members = _members(keywords, "=:")
    parser.at = keywords.at
    return members


def _last_string(value: Any) -> str:
    """Return the string at the end of a value; an empty one if there is something else."""
    while isinstance(value, dict | list) and value:
        value = list(value.values() if isinstance(value, dict) else value)[-1]
    return value if isinstance(value, str) else ""


def _close(parser: LenientJsonParser) -> None:
    """Read the parenthesis after the object. A bracket may be missing where nothing else follows on the line."""
    text, end = parser.text, skip(_BEFORE_CLOSING, parser.text, parser.at)
    if text[end : end + 1] == ")":
        parser.at = end + 1
        if not parser.lacks_brace:
            return
    end = parser.at
    parser.at = skip(_LINE_REST, text, end)
    if text[parser.at : parser.at + 1] not in ("", "\r", "\n"):
        raise parser.unexpected(") or the end of the line after the object of the arguments")
    parser.at = end


def _quoted(parser: LenientJsonParser) -> dict[str, Any]:
    """Read an object that lacks its braces, or one that is written as a string."""
    begin = parser.at
    text = parser.string()
    if parser.peek() == ":":
        parser.at = begin
        return _members(parser, ":")
    value = parse_object(text)
    if value is None or parser.peek() != ")":
        raise InvalidJson(_NO_NAMES, begin)
    parser.at += 1
    return value


def _members(parser: LenientJsonParser, separators: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    while parser.peek() != ")":
        parser.member(members, separators)
        following = parser.peek()
        if following not in ",)":
            raise parser.unexpected("a comma or ) after a value")
        parser.at += following == ","
    parser.at += 1
    return members


# The quotes of Gemma 4, FunctionGemma and Gemini. There are no escapes between them.
_TOKEN_QUOTES = ('<|"|>', "<escape>", "<ctrl46>")
_TOKEN_QUOTE = re.compile("|".join([*map(re.escape, _TOKEN_QUOTES), r"(?<!<\|)[\"']"]))
_BRACKET = re.compile(r"[{}\[\]]")


def read_gemma_object(scanner: Scanner) -> dict[str, Any]:
    """Read an object whose strings may stand between special tokens: `{city:<|"|>Oslo<|"|>}`."""
    begin = scanner.at
    limit = begin + MAX_CALL_CHARS
    quote = _TOKEN_QUOTE.search(scanner.text, begin, limit)
    if quote is None or len(quote[0]) == 1:
        return read_object(scanner)
    pieces: list[str] = []
    depth, at = 0, begin
    for number, piece in enumerate(scanner.text[begin:limit].split(quote[0])):
        if number % 2:
            if piece.startswith(">") or piece.endswith("<"):
                raise Unreadable("a sign too many stands beside the quote of a string")
            pieces.append(json.dumps(piece))
        else:
            for bracket in _BRACKET.finditer(piece):
                depth += 1 if bracket[0] in "{[" else -1
                if depth == 0:
                    value = parse_object("".join([*pieces, piece[: bracket.end()]]))
                    scanner.at = at + bracket.end()
                    scanner.look(scanner.at)
                    if value is None:
                        raise Unreadable(_NO_OBJECT)
                    return value
            pieces.append(piece)
        at += len(piece) + len(quote[0])
    raise Incomplete


_MAX_HEAD_CHARS = 500
_KEY_IN_TAG = r"([^\s<>=\"'/]{1,200})"


class TagStyle(Struct, frozen=True):
    """The tags of one model family: `<function=f><parameter=city>Oslo</parameter></function>` and its relatives."""

    name: re.Pattern[str]
    """The rest of the opening tag of the call."""
    end: str
    """The closing tag of the call."""
    parameter: str
    """The beginning of the opening tag of a parameter."""
    key: re.Pattern[str]
    """The rest of that tag: the key and, for DeepSeek, whether the value is a string."""
    parameter_end: str
    inner_tag: re.Pattern[str]
    """Tags that cannot stand in a value. A value with such a tag has lost its end."""
    has_lines: bool = False
    """Values stand on lines of their own."""


def _style(tag: str, attribute: str, prefix: str = "") -> TagStyle:
    quote = '"' if attribute != "=" else ""
    return TagStyle(
        name=re.compile(rf"{_KEY_IN_TAG}{quote}>"),
        end=f"</{prefix}{tag}>",
        parameter=f"<{prefix}parameter{attribute}{quote}",
        key=re.compile(rf"{_KEY_IN_TAG}{quote}(?:\s+string=\"(true|false)\")?>"),
        parameter_end=f"</{prefix}parameter>",
        inner_tag=re.compile(rf"</?{prefix}(?:parameter|{tag})\b"),
        has_lines=attribute == "=",
    )


TAG_STYLES = {
    "<function=": _style("function", "="),
    '<invoke name="': _style("invoke", " name="),
    '<\uff5cDSML\uff5cinvoke name="': _style("invoke", " name=", "\uff5cDSML\uff5c"),
    '<steptml:invoke name="': _style("invoke", " name=", "steptml:"),
}
"""By the beginning of the opening tag."""
GLM_STYLE = TagStyle(
    name=re.compile(""),
    end="",
    parameter="<arg_key>",
    key=re.compile(rf"\s?{_KEY_IN_TAG}\s?</arg_key>\s*<arg_value>()"),
    parameter_end="</arg_value>",
    inner_tag=re.compile(r"</?arg_(?:key|value)>|</?tool_call>"),
)


def read_tag_call(scanner: Scanner, start: str) -> WrittenCall | None:
    """Read the call whose opening tag begins with `start`, which was taken."""
    style = TAG_STYLES[start]
    head = scanner.match(style.name, _MAX_HEAD_CHARS)
    if head is None:
        return None
    tool = scanner.tools.resolve(head[1])
    scanner.tool = tool or ""
    scanner.space()
    arguments = read_object(scanner) if scanner.sees("{") else read_parameters(scanner, style)
    scanner.expect(style.end)
    return WrittenCall(tool or head[1], arguments)


def read_parameters(scanner: Scanner, style: TagStyle) -> dict[str, Any]:
    """Read parameters in tags. Their values have no quotes: the schema says whether `5` is a number or a string."""
    arguments: dict[str, Any] = {}
    properties = properties_of(scanner.tools.schema(scanner.tool))
    while scanner.take_after_space(style.parameter):
        head = scanner.match(style.key, _MAX_HEAD_CHARS)
        if head is None:
            raise Unreadable("the tag of a parameter cannot be read")
        key = head[1]
        end = scanner.text.find(style.parameter_end, scanner.at, scanner.at + MAX_CALL_CHARS)
        if end < 0:
            raise Incomplete
        value = scanner.text[scanner.at : end]
        if style.inner_tag.search(value) or value.startswith(">") or value.endswith("<"):
            raise Unreadable(f"the value of {key[:80]!r} contains a tag")
        if key in arguments or (properties and key not in properties):
            raise Unreadable(f"the parameter {key[:80]!r} is {'given twice' if key in arguments else 'unknown'}")
        if style.has_lines and len(value) > 1 and value[0] == value[-1] == "\n":
            value = value[1:-1]
        types = properties.get(key, ANYTHING).types
        arguments[key] = _tag_value(key, value, head[2], types) if scanner.tool else value
        scanner.at = end + len(style.parameter_end)
    return arguments


def _tag_value(key: str, text: str, is_string: str | None, types: frozenset[str]) -> Any:
    """Return what the text between the tags means: the text itself, or the JSON in it."""
    if is_string == "true" or (types == {"string"} and text not in ("null", "None")):
        return text
    may_be_string = "string" in types and not is_string
    try:
        value = loads(text)
    except InvalidJson:
        if not may_be_string or (text.lstrip()[:1] in ("{", "[") and types & {"object", "array"}):
            raise Unreadable(f"{text[:80]!r} is not a valid value of {key[:80]!r}") from None
        return text
    if not may_be_string:
        return value
    if isinstance(value, str) or value is None or type_of(value) in types:
        raise Unreadable(f"{text[:80]!r} for {key[:80]!r} may be a string or a value; write the arguments as JSON")
    return text


_SIGNS_AFTER_OBJECT = ("", "\r", "\n", "<", "[", "*", "`", ".", ",", ";")
_DECORATION = re.compile(r"[ \t]*(?:[*`_\])>.]+[ \t]*)*")
_KEY = r"(?:[\"'“”][^\"'“”\n]{0,99}|[^\W\d][\w$.-]{0,63})[\"'“”]?"
_MEMBER = re.compile(rf"[,;]?\s{{0,16}}{_KEY}\s{{0,8}}[:=](?!=)")
_MAX_MEMBER_CHARS = 130
_STRAY_BRACKET = re.compile(r"[\"'“”]?\s{0,16}[)}\]]")


def check_rest(scanner: Scanner, *, in_parentheses: bool = False) -> None:
    """Raise `Unreadable` if the text after a call could belong to it.

    That is a bracket that closes nothing, or a member; and after a brace any words on the same line.
    """
    text, end = scanner.text, scanner.at
    at = skip(_DECORATION if in_parentheses else _SAME_LINE, text, end)
    line_sign = text[at : at + 1]
    if in_parentheses:
        is_stray = line_sign in ("{", "}") or text[end : end + 1] == "("
    else:
        is_stray = line_sign not in _SIGNS_AFTER_OBJECT
    at = skip(SPACE, text, at)
    scanner.look(at + _MAX_MEMBER_CHARS)
    is_stray = is_stray or bool(_STRAY_BRACKET.match(text, at) and not in_parentheses)
    if is_stray or _is_member(scanner, at, python=in_parentheses):
        raise Unreadable("the text after the call could belong to its arguments")


def _is_member(scanner: Scanner, at: int, *, python: bool) -> bool:
    """Whether members follow that end with a bracket, as in `, "dry_run": true}`."""
    text = scanner.text
    while (member := _MEMBER.match(text, at)) is not None:
        if text.startswith(_TOKEN_QUOTES, member.end()):
            return True
        parser = LenientJsonParser(text, member.end(), python=python)
        try:
            parser.value()
            following = parser.peek()
            at = parser.at
            if following == ",":
                parser.at += 1
                following += parser.peek()
        except InvalidJson as error:
            scanner.look(error.at + LOOKAHEAD)
            return False
        except IncompleteJson:
            scanner.look(len(text) + 1)
            return False
        scanner.look(at + _MAX_MEMBER_CHARS)
        if following[-1] in ")}]":
            return True
        if following[0] != ",":
            return False
    return False
