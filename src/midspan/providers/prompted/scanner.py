"""Reads names, values and arguments from text that may contain calls; declares what a form of calls is.

Nothing is guessed. A call whose arguments end too early is not run with a part of them: text that follows a call and
could be one of its arguments makes the call unreadable.
"""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Literal

from msgspec import Struct

from midspan._schema.lenient_json import TOKEN_QUOTES, IncompleteJson, InvalidJson, LenientJsonParser, loads
from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import ANYTHING, SchemaNode, type_of
from midspan._types.specs import NAMESPACES, AnyTool, ToolSpec

CUT = "the text ends before the call does"
SPACE = re.compile(r"\s*")
SAME_LINE = re.compile(r"[ \t]*")
_MAX_NAME_CHARS = 200
_NAME = re.compile(rf"[^\W\d][\w./:-]{{0,{_MAX_NAME_CHARS - 1}}}")
NAMESPACE = "|".join(map(re.escape, NAMESPACES))
_NAMESPACE = re.compile(NAMESPACE)
_CALL_NUMBER = re.compile(r":\d+\Z")


class WrittenCall(Struct, frozen=True):
    """A call as it stands in a text."""

    name: str
    arguments: dict[str, Any]


WrittenCalls = list[WrittenCall] | None
"""None: the text is not a call."""


Place = Literal["anywhere", "line start", "within a line"]


class Form(Struct, frozen=True, eq=False):
    """One form in which models write calls."""

    name: str
    starts: tuple[str, ...]
    """The marks with which a call begins."""
    ends: tuple[str, ...] = ()
    needs_end: bool = True
    """Without the end mark the call is not complete. Some models end their turn with it, so servers remove it."""
    is_certain: bool = True
    """The start mark does not occur in other text. Otherwise only what names a declared tool is a call."""
    place: Place = "anywhere"
    """Where the start marks count."""
    head: re.Pattern[str] | None = None
    """What the text from the start mark on must look like, within `MAX_HEAD_CHARS`."""
    is_content: bool = False
    """The start mark is a part of what is read."""
    parse: "Callable[[Scanner], WrittenCalls] | None" = None
    """Reads the calls; returns None if the text is not a call. Without it, the calls are read in any form."""
    error: str = ""
    """Why calls in this form are not made."""


MAX_HEAD_CHARS = 160


class Unreadable(Exception):
    """A call cannot be read. If `scanner.tool` is None, the text may not be a call."""


class ToolIndex:
    """The declared tools by name."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self.specs = {tool.name: tool for tool in tools if isinstance(tool, ToolSpec)}
        self._schemas: dict[str, SchemaNode] = {}

    def resolve(self, name: str) -> str | None:
        """Return the declared name. Some models add a namespace before it, and Kimi the number of the call after it."""
        if name in self.specs:
            return name
        bare = _CALL_NUMBER.sub("", name[skip(_NAMESPACE, name, 0) :])
        return bare if bare in self.specs else None

    def resembles(self, name: str) -> bool:
        """Whether a tool has this name or a similar one."""
        return self.resolve(name) is not None or bool(get_close_matches(name[:_MAX_NAME_CHARS], self.specs, 1, 0.6))

    def schema(self, name: str | None) -> SchemaNode:
        """Return the schema of the parameters of a tool; one that accepts anything if the tool is unknown."""
        if name is None or name not in self.specs:
            return ANYTHING
        if name not in self._schemas:
            self._schemas[name] = parameters_of(self.specs[name])
        return self._schemas[name]


def parameters_of(tool: ToolSpec) -> SchemaNode:
    return normalize_tree(tool.parameters or {}).root


def properties_of(node: SchemaNode) -> dict[str, SchemaNode]:
    """Return the properties that a schema declares, itself or by reference."""
    return {name: prop for part in node.applying for name, prop in part.properties.items()}


class Scanner:
    """Reads marks, names and values from the position `at` of a text."""

    def __init__(self, text: str, at: int, tools: ToolIndex, form: Form) -> None:
        self.text = text
        self.at = at
        self.tools = tools
        self.form = form
        self.tool: str | None = None
        """The tool of the call; empty if a call is certain and its tool is not known, None if no call is certain."""
        self.parsed_chars = 0
        """How much text was read as values, including failed attempts."""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern here and advance past it."""
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def space(self) -> None:
        self.match(SPACE)

    def take(self, *marks: str) -> str:
        """Return the first of these marks that is at the current position, or an empty string."""
        mark = self.sees(*marks)
        self.at += len(mark)
        return mark

    def take_after_space(self, *marks: str) -> str:
        """Like `take`, after any space; without a mark the position stays the same."""
        before = self.at
        self.space()
        mark = self.take(*marks)
        if not mark:
            self.at = before
        return mark

    def sees(self, *marks: str) -> str:
        """Return the mark that is at the current position without moving."""
        return next((mark for mark in marks if self.text.startswith(mark, self.at)), "")

    def expect(self, *marks: str) -> None:
        """Take one of these marks after any space. A call without the end mark of its form is not complete."""
        if not self.take_after_space(*marks):
            raise Unreadable(f"expected {marks[0]} after it" if self.text[self.at :].strip() else CUT)

    def name(self) -> str:
        """Return the name that is at the current position, or an empty string."""
        name = self.match(_NAME)
        return name[0] if name else ""

    def call_of(self, name: str) -> str:
        """Note that a call of this tool is certain, and return the declared name if there is one."""
        self.tool = self.tools.resolve(name) or ""
        return self.tool or name

    def parse(self, parse: Callable[[LenientJsonParser], Any] = LenientJsonParser.value, **options: bool) -> Any:
        """Return what `parse` reads here."""
        begin = self.at
        parser = LenientJsonParser(self.text, begin, **options)
        try:
            value = parse(parser)
        except InvalidJson as error:
            raise Unreadable(error.problem) from None
        except IncompleteJson:
            parser.at = len(self.text)
            raise Unreadable(CUT) from None
        finally:
            self.parsed_chars += parser.at - begin
        self.at = parser.at
        return value


def skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where a match of the pattern at this position ends; the same position if there is none."""
    match = pattern.match(text, at)
    return match.end() if match else at


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


_TAG_NAME = r"([^\s<>=\"'/]{1,200})"
TAGS = {
    "<function=": "</function>",
    '<invoke name="': "</invoke>",
    '<\uff5cDSML\uff5cinvoke name="': "</\uff5cDSML\uff5cinvoke>",
}
"""The closing tag of a call, by the beginning of the opening one."""
_TAG_REST = re.compile(rf"{_TAG_NAME}\"?>")
# DeepSeek says whether the value is a string.
_PARAMETER = re.compile(
    rf"\s*+<(\uff5cDSML\uff5c|)parameter(?:=| name=(\")){_TAG_NAME}(?(2)\"(?:\s+string=\"(true|false)\")?)>"
)
_GLM_PARAMETER = re.compile(rf"\s*+<arg_key>()()\s?{_TAG_NAME}\s?</arg_key>\s*<arg_value>()")
_INNER_TAG = re.compile("</?(?:(?:\uff5cDSML\uff5c)?(?:parameter|function|invoke)|arg_key|arg_value|tool_call)\\b")
_STRAY_PARAMETER = re.compile("(?:<?[^<]{0,200}</|[,;\\s]*+<)(?:\uff5cDSML\uff5c)?(?:parameter|arg_)")
"""The beginning of a parameter, or a damaged one up to its closing tag."""


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
        if head[0].lstrip().startswith("<parameter=") and len(value) > 1 and value[0] == value[-1] == "\n":
            value = value[1:-1]
        types = properties.get(key, ANYTHING).types
        arguments[key] = _tag_value(key, value, string_flag, types) if scanner.tool else value
        scanner.at = end + len(end_tag)
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

    That is a bracket that closes nothing, a member, or a parameter in tags; and after a brace any words on the same
    line.
    """
    check_no_parameter(scanner)
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


def check_no_parameter(scanner: Scanner) -> None:
    """Raise `Unreadable` if a parameter in tags follows the call: a damaged tag has ended the call too early."""
    if _STRAY_PARAMETER.match(scanner.text, scanner.at):
        raise Unreadable("the tags of a parameter after it cannot be read")


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
