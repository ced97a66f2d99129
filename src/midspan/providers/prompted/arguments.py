"""The arguments of a call, as JSON, Python keywords or tags; and whether the text after them could belong to them.

Nothing is guessed. A call whose arguments end too early is not run with a part of them: text that follows a call and
could be one of its arguments makes the call unreadable.
"""

import re
from typing import Any

from midspan._schema.lenient_json import TOKEN_QUOTES, IncompleteJson, InvalidJson, LenientJsonParser, loads
from midspan._schema.tree import ANYTHING, SchemaNode, type_of
from midspan.providers.prompted.scanner import (
    CUT,
    SAME_LINE,
    SPACE,
    Scanner,
    Unreadable,
    WrittenCall,
    properties_of,
    skip,
)

_KEYWORD = re.compile(r"[^\W\d][\w-]{0,199}\s{0,20}[=:](?!=)")
_CLOSING = re.compile(r"\s*(?:,\s*)?\)")
_LINE_REST = re.compile(r"[ \t*`\]>.;]*(?=[\r\n]|\Z)")


def read_object(scanner: Scanner, *, tokens: bool = False) -> dict[str, Any]:
    """Read the object in braces at the current position; with `tokens`, strings may stand between special tokens."""
    scanner.space()
    if not scanner.sees("{"):
        raise Unreadable("its arguments are not an object in braces")
    members: dict[str, Any] = scanner.parse(tokens=tokens)
    return members


def read_parentheses(scanner: Scanner, *, python: bool = False) -> dict[str, Any]:
    """Read the arguments from the opening parenthesis to the closing one: keywords or, unless `python`, an object."""
    scanner.at += 1
    scanner.space()
    if python or not scanner.sees("{"):
        arguments: dict[str, Any] = scanner.parse(_keywords, python=True)
        check_names(scanner, arguments)
        return arguments
    arguments = read_object(scanner)
    end = skip(_CLOSING, scanner.text, scanner.at)
    # The parenthesis may be missing where nothing else follows on the line.
    if end == scanner.at and not _LINE_REST.match(scanner.text, end):
        raise Unreadable("expected ) or the end of the line after the object of the arguments")
    scanner.at = end
    return arguments


def _keywords(parser: LenientJsonParser) -> dict[str, Any]:
    if parser.peek() != ")" and not _KEYWORD.match(parser.text, parser.at):
        raise InvalidJson('the arguments have no names; write them as an object: {"name": value}', parser.at)
    return parser.members(")", "=:")


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


_NAME = r"([^\s<>=\"'/]{1,200})"
TAGS = {
    "<function=": "</function>",
    '<invoke name="': "</invoke>",
    '<\uff5cDSML\uff5cinvoke name="': "</\uff5cDSML\uff5cinvoke>",
}
"""The closing tag of a call, by the beginning of the opening one."""
_TAG_REST = re.compile(rf"{_NAME}\"?>")
# DeepSeek says whether the value is a string.
_PARAMETER = re.compile(
    rf"<(\uff5cDSML\uff5c|)parameter(?:=| name=(\")){_NAME}(?(2)\"(?:\s+string=\"(true|false)\")?)>"
)
_GLM_PARAMETER = re.compile(rf"<arg_key>()()\s?{_NAME}\s?</arg_key>\s*<arg_value>()")
_INNER_TAG = re.compile("</?(?:(?:\uff5cDSML\uff5c)?(?:parameter|function|invoke)|arg_key|arg_value|tool_call)\\b")


def read_tag_call(scanner: Scanner, start: str) -> WrittenCall | None:
    """Read the call whose opening tag begins with `start`, which was taken."""
    head = scanner.match(_TAG_REST)
    if head is None:
        return None
    name = scanner.call_of(head[1])
    scanner.space()
    arguments = read_object(scanner) if scanner.sees("{") else read_parameters(scanner)
    scanner.expect(TAGS[start])
    return WrittenCall(name, arguments)


def read_parameters(scanner: Scanner) -> dict[str, Any]:
    """Read parameters in tags. Their values have no quotes: the schema says whether `5` is a number or a string."""
    arguments: dict[str, Any] = {}
    properties = properties_of(scanner.tools.schema(scanner.tool))
    scanner.space()
    while head := scanner.match(_PARAMETER) or scanner.match(_GLM_PARAMETER):
        prefix, _, key, string_flag = head.groups()
        end_tag = "</arg_value>" if head.re is _GLM_PARAMETER else f"</{prefix}parameter>"
        end = scanner.text.find(end_tag, scanner.at)
        if end < 0:
            raise Unreadable(CUT)
        value = scanner.text[scanner.at : end]
        if _INNER_TAG.search(value) or value.startswith(">") or value.endswith("<"):
            raise Unreadable(f"the value of {key[:80]!r} contains a tag")  # it has lost its end
        if key in arguments or (properties and key not in properties):
            raise Unreadable(f"the parameter {key[:80]!r} is {'given twice' if key in arguments else 'unknown'}")
        if head[0].startswith("<parameter=") and len(value) > 1 and value[0] == value[-1] == "\n":
            value = value[1:-1]
        types = properties.get(key, ANYTHING).types
        arguments[key] = _tag_value(key, value, string_flag, types) if scanner.tool else value
        scanner.at = end + len(end_tag)
        scanner.space()
    return arguments


def _tag_value(key: str, text: str, string_flag: str | None, types: frozenset[str]) -> Any:
    """Return what the text between the tags means: the text itself, or the JSON in it.

    `string_flag` is `true` or `false` if the tag says whether the value is a string.
    """
    if string_flag == "true" or (types == {"string"} and text not in ("null", "None")):
        return text
    may_be_string = "string" in types and not string_flag
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
_STRAY_BRACKET = re.compile(r"[\"'“”]?\s{0,16}[)}\]]")


def check_rest(scanner: Scanner, *, in_parentheses: bool = False) -> None:
    """Raise `Unreadable` if the text after a call could belong to it.

    That is a bracket that closes nothing, or a member; and after a brace any words on the same line.
    """
    text, end = scanner.text, scanner.at
    at = skip(_DECORATION if in_parentheses else SAME_LINE, text, end)
    line_sign = text[at : at + 1]
    if in_parentheses:
        is_stray = line_sign in ("{", "}") or text[end : end + 1] == "("
    else:
        is_stray = line_sign not in _SIGNS_AFTER_OBJECT
    at = skip(SPACE, text, at)
    is_stray = is_stray or bool(_STRAY_BRACKET.match(text, at) and not in_parentheses)
    if is_stray or _is_member(text, at, python=in_parentheses):
        raise Unreadable("the text after the call could belong to its arguments")


def _is_member(text: str, at: int, *, python: bool) -> bool:
    """Whether members follow that end with a bracket, as in `, "dry_run": true}`."""
    following = ","
    while following[0] == "," and (member := _MEMBER.match(text, at)) is not None:
        if text.startswith(TOKEN_QUOTES, member.end()):
            return True
        parser = LenientJsonParser(text, member.end(), python=python)
        try:
            parser.value()
            following, at = parser.peek(), parser.at
            if following == ",":
                parser.at += 1
                following += parser.peek()
        except (InvalidJson, IncompleteJson):
            return False
        if following[-1] in ")}]":
            return True
    return False
