"""Score prompt mode: `python scripts/score_prompted.py FILE…`, each a .jsonl of Berkeley function-calling rows.

Every true call is written as a model would write it, as it should be and damaged in many ways, and read again. Read are
name and arguments as written, before any validation. A call is exact, or the model is asked about it, or it is wrong:
read with another name or another value, made up, or lost without a word. Exits 1 unless undamaged calls are all exact
and none is wrong under any damage.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import codecs
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from replay_schemas import arguments_of, helper
from row_files import lines_of

from midspan._types.parts import Text, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.prompted.dialects.tags import types_of
from midspan.providers.prompted.findings import Refused
from midspan.providers.prompted.reader import Piece, Reader

Row = dict[str, Any]
Call = tuple[str, dict[str, Any]]
Write = Callable[[dict[str, Any]], str]
Damage = Callable[[random.Random, Sequence[Call]], str]

SEED = 20_260_101


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    scores: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()
    for name in files:
        score_file(Path(name), scores, totals)
    width = max(map(len, scores), default=0)
    print(f"{'':{width}}  {'calls':>6}  {'exact':>6}  {'asked':>6}  {'wrong':>6}")
    for name, score in scores.items():
        counts = "  ".join(f"{score[kind]:>6}" for kind in ("calls", "exact", "asked", "wrong"))
        print(f"{name:{width}}  {counts}")
    undamaged = [score for name, score in scores.items() if name.endswith("plain")]
    totals["calls"] = scores["plain"]["calls"] if "plain" in scores else 0
    totals["plain_not_exact"] = sum(score["calls"] - score["exact"] for score in undamaged)
    totals["wrong"] = sum(score["wrong"] for score in scores.values())
    print(" ".join(f"{name}={totals[name]}" for name in _COUNTS))
    failed = (
        any(totals[name] for name in ("plain_not_exact", "wrong", "false_calls", "failures")) or not totals["calls"]
    )
    return 1 if failed else 0


_COUNTS = ("rows", "calls", "plain_not_exact", "wrong", "answers", "false_calls", "failures")


def score_file(file: Path, scores: dict[str, Counter[str]], totals: Counter[str]) -> None:
    def fail(what: str) -> None:
        print(f"FAIL {what}")
        totals["failures"] += 1

    for place, line in lines_of(file, fail):
        totals["rows"] += 1
        try:
            score_row(json.loads(line), file, scores, totals)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")


def score_row(row: Row, file: Path, scores: dict[str, Counter[str]], totals: Counter[str]) -> None:
    functions = list(row["functions"])
    for name in row.get("functions_ref") or ():
        functions += helper(file, "bfcl_multi_turn_functions.json")[name]
    tools = [ToolSpec(one["name"], one.get("description", ""), one.get("parameters") or {}) for one in functions]
    dice = dice_of(row.get("id"))
    if row["expect"] == "no_call":
        for answer in plain_answers(dice, row, tools):
            totals["answers"] += 1
            pieces = read(answer, tools)
            if any(not isinstance(piece, Text) for piece in pieces) or text_of(pieces) != answer:
                totals["false_calls"] += 1
                print(f"FALSE CALL {row.get('id')}: {answer!r}: {pieces}")
    for calls in answers_of(row, functions):
        for name, damage in DAMAGES.items():
            score(name, damage(dice, calls), calls, tools, dice, scores.setdefault(name, Counter()), row)
        sayable = all(in_tags(value, tools, call[0], key) for call in calls for key, value in call[1].items())
        for name, damage in DIALECTS.items():
            text = damage(dice, calls) if sayable or not name.startswith("function tags") else ""
            if text:
                score(name, text, calls, tools, dice, scores.setdefault(name, Counter()), row)


def dice_of(seed: object) -> random.Random:
    return random.Random(f"{SEED} {seed}")  # noqa: S311 - the same damages in every run, nothing secret


def answers_of(row: Row, functions: list[Row]) -> Iterator[list[Call]]:
    """The true calls, one list for each answer of the model."""
    parameters = {one["name"]: one.get("parameters") or {} for one in functions}
    calls = row.get("calls") or []
    turns = calls if calls and isinstance(calls[0], list) else [calls]
    for turn in turns:
        known = [call for call in turn if call.get("name") in parameters]
        if known:
            yield [(call["name"], arguments_of(call, parameters[call["name"]])) for call in known]


def score(
    kind: str,
    text: str,
    calls: Sequence[Call],
    tools: list[ToolSpec],
    dice: random.Random,
    counts: Counter[str],
    row: Row,
) -> None:
    pieces = read(text, tools)
    found = [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]
    asked = any(isinstance(piece, Refused) for piece in pieces)
    wanted = list(calls)
    exact = 0
    for call in found:
        place = next((at for at, one in enumerate(wanted) if same(one, call)), None)
        if place is None:
            counts["wrong"] += 1
            print(f"WRONG {kind} {row.get('id')}: {call!r} read from {text!r}")
        else:
            exact += 1
            del wanted[: place + 1]
    missing = len(calls) - exact
    counts["calls"] += len(calls)
    counts["exact"] += exact
    counts["asked" if asked else "wrong"] += missing
    if missing and not asked:
        print(f"LOST {kind} {row.get('id')}: {missing} calls in {text!r}")
    cuts = len(text.encode()) if kind == "split at any byte" else dice.choice((1, 3, 12))
    if joined(read_split(text, tools, dice, cuts)) != joined(pieces):
        counts["wrong"] += 1
        print(f"SPLIT {kind} {row.get('id')}: another reading of {text!r}")


def same(one: Call, other: Call) -> bool:
    """Whether two calls are the same, to the type: 1 is not 1.0, and not true."""
    return one[0] == other[0] and json.dumps(one[1], sort_keys=True) == json.dumps(other[1], sort_keys=True)


def read(text: str, tools: list[ToolSpec]) -> list[Piece]:
    reader = Reader(tools)
    return [*reader.feed(text), *reader.end()]


def read_split(text: str, tools: list[ToolSpec], dice: random.Random, count: int) -> list[Piece]:
    """The same, the bytes cut at any place, also within a letter."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    reader = Reader(tools)
    data = text.encode()
    places = range(len(data) + 1)
    cuts = sorted({0, *(places if count >= len(data) else dice.sample(places, count)), len(data)})
    pieces: list[Piece] = []
    for begin, end in pairwise(cuts):
        pieces += reader.feed(decoder.decode(data[begin:end]))
    return [*pieces, *reader.end()]


def joined(pieces: list[Piece]) -> list[Piece]:
    made: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Text) and made and isinstance(made[-1], Text):
            made[-1] = Text(made[-1].text + piece.text)
        else:
            made.append(piece)
    return made


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


# How models talk around their calls.

BEFORE = (
    "", "I'll look that up for you.\n", "Sure! Let me check (this takes a moment):\n\n", "Okay — here we go.\n",
    'To answer this I need one more thing, e.g. the "current" value.\n', "**Plan**\n1. Call the tool.\n2. Answer.\n\n",
    "The user wants {this}; I'll use the tool's result [1].\n", "Gern, einen Moment bitte …\n", "好的, 我来查询。\n",
)  # fmt: skip
AFTER = (
    "", "\n", "\nI'm fetching this for you now.", "\n\nOnce I have the result (or an error), I'll summarise it.",
    "\nLet's see what it says: it's 50/50.", "\n\nDanke für die Geduld!", "\n> waiting for the tool",
)  # fmt: skip


def around(dice: random.Random, body: str) -> str:
    return dice.choice(BEFORE) + body + dice.choice(AFTER)


def plain_answers(dice: random.Random, row: Row, tools: list[ToolSpec]) -> Iterator[str]:
    """What a model says that calls nothing, although it may speak of tools."""
    asked = str(row["question"][0][-1]["content"] if row.get("question") else "")[:300]
    asked = re.sub(r"\s+", " ", asked)
    name = tools[0].name if tools else "the_tool"
    data = json.dumps({"name": "Ada", "arguments": ["for", "against"], "score": 5})
    yield dice.choice(
        (
            f"I'm sorry, none of my tools can help with this: {asked}",
            f"You asked: “{asked}” I can answer that without a tool.\n\n1. First (see above).\n2. Then {{that}}.",
            f"`{name}` does something else, so I did not call {name}(…). Could you tell me more?",
            f"In Python you could write:\n```python\nresult = {name}(1, 2)\nprint(result)\n```\nbut I cannot run it.",
            f"Here is the data:\n```json\n{data}\n```\nThat is all [1](https://example.org/a_(b)).",
            f"No tool call is needed. A tool call: that is what I would make if {name} fitted.",
            f"Action: none is required here.\nFinal Answer: {asked}",
            f"[Note] {asked}\n{{draft}} **Summary:** nothing to call.",
        )
    )


# How arguments are written, as JSON or nearly so.


def compact(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def ascii_only(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


def pretty(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def trailing_commas(arguments: dict[str, Any]) -> str:
    return written(arguments, '"', end=",")


def single_quotes(arguments: dict[str, Any]) -> str:
    """Each double quote turned into a single one, whatever that does to apostrophes."""
    return compact(arguments).replace('"', "'")


def python_literals(arguments: dict[str, Any]) -> str:
    return repr(arguments)


def smart_quotes(arguments: dict[str, Any]) -> str:
    marks = iter("“”" * 100_000)
    return re.sub('"', lambda _: next(marks), compact(arguments))


def unquoted_keys(arguments: dict[str, Any]) -> str:
    return written(arguments, "")


def comments(arguments: dict[str, Any]) -> str:
    return written(arguments, '"', after=" // as asked\n", before="/* see {above} */ ")


def raw_line_breaks(arguments: dict[str, Any]) -> str:
    return compact(arguments).replace("\\n", "\n")


def written(value: Any, quote: str, *, end: str = "", before: str = "", after: str = "") -> str:
    """JSON with keys, commas and comments in another manner."""
    if isinstance(value, dict) and value:
        members = [
            f"{before}{name if quote == '' and name.isidentifier() else json.dumps(name)}: "
            + written(inner, quote, end=end, before=before, after=after)
            for name, inner in value.items()
        ]
        return "{" + (f",{after}" if after else ", ").join(members) + end + after + "}"
    if isinstance(value, list) and value:
        return "[" + ", ".join(written(one, quote, end=end, before=before, after=after) for one in value) + end + "]"
    return json.dumps(value, ensure_ascii=False)


def keywords(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={inner!r}" for name, inner in arguments.items())


# How calls are damaged.


def lines(write: Write = compact, *, form: str = "TOOL_CALL: {name}({arguments})", between: str = "\n") -> Damage:
    def damage(dice: random.Random, calls: Sequence[Call]) -> str:
        body = between.join(form.format(name=name, arguments=write(arguments)) for name, arguments in calls)
        return around(dice, body)

    return damage


def keyword_lines(dice: random.Random, calls: Sequence[Call]) -> str:
    good = all(name.isidentifier() for _, arguments in calls for name in arguments)
    return lines(keywords if good else compact)(dice, calls)


def cut(dice: random.Random, calls: Sequence[Call]) -> str:
    """The last call broken off anywhere between its marker and its end."""
    body = "\n".join(f"TOOL_CALL: {name}({compact(arguments)})" for name, arguments in calls)
    last = len(body) - len(compact(calls[-1][1])) - len(calls[-1][0]) - 2
    return dice.choice(BEFORE) + body[: dice.randrange(last, len(body))]


def without_quote(dice: random.Random, calls: Sequence[Call]) -> str:
    """One quote anywhere is missing."""
    body = "\n".join(f"TOOL_CALL: {name}({compact(arguments)})" for name, arguments in calls)
    places = [match.start() for match in re.finditer('"', body)]
    at = dice.choice(places) if places else len(body)
    return around(dice, body[:at] + body[at + 1 :])


def without_letter(dice: random.Random, calls: Sequence[Call]) -> str:
    """One of the signs that hold the arguments together is missing; those inside texts do not count."""
    body = "\n".join(f"TOOL_CALL: {name}({compact(arguments)})" for name, arguments in calls)
    hidden = re.sub(r'"(?:[^"\\]|\\.)*"|TOOL_CALL:', lambda text: "_" * len(text[0]), body)
    at = dice.choice([place.start() for place in re.finditer(r"[{}\[\]:,]", hidden)])
    return around(dice, body[:at] + body[at + 1 :])


DAMAGES: dict[str, Damage] = {
    "plain": lines(),
    "escaped to ASCII": lines(ascii_only),
    "split at any byte": lines(),
    "in a code fence": lines(form="```\nTOOL_CALL: {name}({arguments})\n```"),
    "all in one fence": lambda dice, calls: around(dice, "```tool\n" + lines()(dice_of(1), calls) + "\n```"),
    "list and bold marks": lines(form="1. **TOOL_CALL: {name}({arguments})**"),
    "bold marker": lines(form="- **TOOL_CALL:** `{name}({arguments})`"),
    "brackets around": lines(form="[TOOL_CALL: {name}({arguments})]"),
    "marker in lower case": lines(form="tool_call: {name}({arguments})"),
    "spaces everywhere": lines(form="TOOL_CALL :  {name} ( {arguments} )"),
    "newlines inside": lines(pretty),
    "newlines around": lines(form="TOOL_CALL: {name}(\n{arguments}\n)"),
    "raw line breaks in texts": lines(raw_line_breaks),
    "trailing commas": lines(trailing_commas),
    "single quotes": lines(single_quotes),
    "Python literals": lines(python_literals),
    "smart quotes": lines(smart_quotes),
    "comments": lines(comments),
    "unquoted keys": lines(unquoted_keys),
    "keyword arguments": keyword_lines,
    "text glued to the call": lines(form="Sure.TOOL_CALL: {name}({arguments})Done"),
    "two calls on a line": lines(between=" "),
    "calls without a space": lines(between=""),
    "missing final parenthesis": lines(form="TOOL_CALL: {name}({arguments}"),
    "missing final brace": lines(lambda arguments: compact(arguments)[:-1]),
    "missing brace and parenthesis": lines(lambda given: compact(given)[:-1], form="TOOL_CALL: {name}({arguments}"),
    "without parentheses": lines(form="TOOL_CALL: {name} {arguments}"),
    "braces twice": lines(form="TOOL_CALL: {name}({{{arguments}}})"),
    "a quote missing": without_quote,
    "a bracket, colon or comma missing": without_letter,
    "cut at the end": cut,
}  # fmt: skip


# The forms of other models.


def objects(write: Write, name_word: str = "name", arguments_word: str = "arguments") -> Callable[[Call], str]:
    return lambda call: f'{{"{name_word}": {json.dumps(call[0])}, "{arguments_word}": {write(call[1])}}}'


def tagged(head: str, tail: str, between: str, before: str = "", after: str = "") -> Callable[[Write], Damage]:
    """Each call between tags."""

    def form(write: Write) -> Damage:
        def damage(dice: random.Random, calls: Sequence[Call]) -> str:
            body = between.join(
                head.replace("NAME", name) + write_call(write, name, arguments, head) + tail
                for name, arguments in calls
            )
            return around(dice, before + body + after)

        return damage

    return form


def write_call(write: Write, name: str, arguments: dict[str, Any], head: str) -> str:
    if "NAME" in head:
        return write(arguments)
    return objects(write, arguments_word="parameters" if "python_tag" in head else "arguments")((name, arguments))


def python_call(call: Call) -> str:
    return f"{call[0]}({keywords(call[1])})"


def code(head: str, form: str, between: str, tail: str) -> Damage:
    def damage(dice: random.Random, calls: Sequence[Call]) -> str:
        if not all(name.isidentifier() for _, arguments in calls for name in arguments):
            return ""
        body = between.join(form.replace("CALL", python_call(call)) for call in calls)
        return around(dice, head + body + tail)

    return damage


def tag_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def function_tags(dice: random.Random, calls: Sequence[Call]) -> str:
    """Values without quotes: what is no text, but stands where the tool wants one, cannot be written so."""
    made = []
    for name, arguments in calls:
        values = "".join(f"<parameter={key}>\n{tag_text(value)}\n</parameter>\n" for key, value in arguments.items())
        made.append(f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>")
    return around(dice, "\n".join(made))


def in_tags(value: Any, tools: list[ToolSpec], name: str, key: str) -> bool:
    """Whether a value without quotes can be told from others: a text where one is wanted, else anything but a text."""
    parameters = next((tool.parameters or {} for tool in tools if tool.name == name), {})
    types = types_of(parameters.get("properties", {}).get(key))
    return types == {"string"} and value != "null" if isinstance(value, str) else bool(types) and "string" not in types


def cut_off(form: Damage, sure: str) -> Damage:
    """The last call broken off anywhere after it was sure that one is meant."""

    def damage(dice: random.Random, calls: Sequence[Call]) -> str:
        text = form(dice, calls)
        places = list(re.finditer(sure.replace("NAME", re.escape(calls[-1][0])), text))
        return text[: dice.randrange(places[-1].end(), len(text) + 1)] if places else ""

    return damage


WRITERS: dict[str, Write] = {
    "plain": compact,
    "newlines inside": pretty,
    "trailing commas": trailing_commas,
    "single quotes": single_quotes,
    "smart quotes": smart_quotes,
    "comments": comments,
    "unquoted keys": unquoted_keys,
    "missing final brace": lambda arguments: compact(arguments)[:-1],
}
BAR, LOW = "\uff5c", "\u2581"
_DEEP = f"<{BAR}tool{LOW}call{LOW}begin{BAR}>", f"<{BAR}tool{LOW}call{LOW}end{BAR}>", f"<{BAR}tool{LOW}sep{BAR}>"
_DEEPS = f"<{BAR}tool{LOW}calls{LOW}begin{BAR}>", f"<{BAR}tool{LOW}calls{LOW}end{BAR}>"
TAGGED = {
    "Hermes": tagged("<tool_call>\n", "\n</tool_call>", "\n"),
    "Llama": tagged("<|python_tag|>", "<|eom_id|>", "\n"),
    "Mistral": tagged("", "", ", ", "[TOOL_CALLS] [", "]"),
    "Mistral 11": tagged("[TOOL_CALLS]NAME[ARGS]", "", ""),
    "DeepSeek": tagged(f"{_DEEP[0]}function{_DEEP[2]}NAME\n```json\n", f"\n```{_DEEP[1]}", "\n", *_DEEPS),
    "DeepSeek 3.1": tagged(f"{_DEEP[0]}NAME{_DEEP[2]}", _DEEP[1], "", *_DEEPS),
    "ReAct": tagged("Thought: I need NAME.\nAction: NAME\nAction Input: ", "", "\n\n", "\n"),
    "function tag": tagged("<function=NAME>", "</function>", "\n"),
    "fenced JSON": tagged("```json\n", "\n```", "\n", "\n"),
    "bare JSON": tagged("", "", "\n", "\n"),
    "leaked": tagged("call:NAME", "", "\n"),
}
CODE = {
    "Llama list": code("\n[", "CALL", ", ", "]"),
    "tool_code": code("\n```tool_code\n", "print(default_api.CALL)", "\n", "\n```"),
    "default_api": code("", "print(default_api.CALL)", "\n", ""),
}
SURE = r'NAME(?:["(>\[\n{]|' + _DEEP[2] + ")"
DIALECTS: dict[str, Damage] = {
    **{f"{name}: {word}": form(write) for name, form in TAGGED.items() for word, write in WRITERS.items()},
    **{f"{name}: plain": form for name, form in CODE.items()},
    "function tags: plain": function_tags,
    **{f"{name}: cut at the end": cut_off(form(compact), SURE) for name, form in TAGGED.items()},
    **{f"{name}: cut at the end": cut_off(form, r"NAME\(") for name, form in CODE.items()},
    "function tags: cut at the end": cut_off(function_tags, "NAME>"),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
