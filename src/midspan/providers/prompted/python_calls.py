"""Calls written as Python: `[f(a=1), g(b="x")]`, `print(default_api.f(a=1))` and code fences of such statements."""

import re

from midspan.providers.prompted.arguments import check_rest, read_parentheses
from midspan.providers.prompted.scanner import Incomplete, Scanner, WrittenCall, skip

_FENCE = re.compile(r"```(?:tool_code|tool_call)[ \t]*\r?\n")
_FENCE_START = re.compile(r"`{1,3}[a-z_]{0,9}[ \t]*\r?\Z")
_NO_CODE = "code is not run; write only calls, each on a line of its own"
_LINE_START = re.compile(r"\n(?:[^\W\d]\w{0,20} = )?\Z")
_MAX_LINE_START_CHARS = 40
_SAME_LINE = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r|\n|```|#|\Z")
_ASSIGNMENT = re.compile(r"[^\W\d]\w{0,99} = ")
_NO_CALL = re.compile(r"print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)")


def read_call_list(scanner: Scanner, *, is_certain: bool = False) -> list[WrittenCall] | None:
    """Read calls in brackets. In plain text the first one must be a call of a declared tool."""
    scanner.take("[")
    calls: list[WrittenCall] = []
    while True:
        scanner.space()
        call = _read_call(scanner, is_certain=is_certain or bool(calls))
        if call is None and not calls:
            return None
        if call is None:
            raise scanner.error("there is something else than calls in the list")
        calls.append(call)
        scanner.check_count(calls)
        scanner.space()
        if scanner.take("]"):
            return calls
        if not scanner.take(","):
            scanner.expect("]")


def read_statements(scanner: Scanner) -> list[WrittenCall] | None:
    """Read Gemini's statements on a line of their own: calls, in `print` or not, with semicolons between them."""
    if not _LINE_START.search(scanner.text, max(0, scanner.at - _MAX_LINE_START_CHARS), scanner.at):
        return None
    calls: list[WrittenCall] = []
    while (call := _read_statement(scanner)) is not None:
        calls.append(call)
        scanner.check_count(calls)
        scanner.at = skip(_SAME_LINE, scanner.text, scanner.at)
        if not scanner.take(";"):
            break
        scanner.at = skip(_SAME_LINE, scanner.text, scanner.at)
    if not calls:
        return None
    if scanner.at == len(scanner.text) and not scanner.is_final:
        scanner.awaits_rest = True
        raise Incomplete
    if not _LINE_END.match(scanner.text, scanner.at):
        raise scanner.error(_NO_CODE)
    check_rest(scanner, python=True, in_parentheses=True)
    return calls


def read_code_fence(scanner: Scanner) -> list[WrittenCall] | None:
    """Read a code fence of such statements. Other code in it could decide whether a call is made, so none is."""
    head = _FENCE.match(scanner.text, scanner.at)
    if head is None:
        if not scanner.is_final and _FENCE_START.match(scanner.text, scanner.at):
            raise Incomplete
        return None
    scanner.at = head.end()
    calls: list[WrittenCall] = []
    while not scanner.take_after_space("```"):
        scanner.space()
        if scanner.is_final and scanner.text[scanner.at :] in ("", "`", "``"):
            scanner.at = len(scanner.text)
            break
        if skipped := _NO_CALL.match(scanner.text, scanner.at):
            scanner.at = skipped.end()
            continue
        call = _read_statement(scanner)
        if call is None:
            _check_other_code(scanner, head.end(), calls)
            return None
        calls.append(call)
        scanner.check_count(calls)
        scanner.take_after_space(";")
    return calls or None


def _check_other_code(scanner: Scanner, begin: int, calls: list[WrittenCall]) -> None:
    end = scanner.text.find("```", scanner.at)
    if end < 0 and not scanner.is_final:
        raise Incomplete
    if calls or "default_api." in scanner.text[begin : end if end >= 0 else None]:
        scanner.tool = scanner.tool or ""
        raise scanner.error(_NO_CODE, end=end + 3 if end >= 0 else None)


def _read_statement(scanner: Scanner) -> WrittenCall | None:
    scanner.at = skip(_ASSIGNMENT, scanner.text, scanner.at)
    opening = scanner.take("print(", "python(")
    call = _read_call(scanner)
    if call is not None and opening:
        scanner.expect(")")
    return call


def _read_call(scanner: Scanner, *, is_certain: bool = False) -> WrittenCall | None:
    """Read a call of a declared tool, or of any tool where only calls stand."""
    name = scanner.name()
    tool = scanner.tools.resolve(name)
    if not name or (tool is None and not is_certain) or not scanner.sees("("):
        return None
    scanner.tool = tool or ""
    return WrittenCall(tool or name, read_parentheses(scanner, python=True))
