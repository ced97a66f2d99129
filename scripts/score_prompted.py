"""Score prompt mode: `python scripts/score_prompted.py FILE…`, each a .jsonl of Berkeley function-calling rows.

Every true call is written in the forms of many models, intact and damaged, and read again, whole and in pieces. A call
is exact, or the model is asked about it, or it is lost (read as text), or it is wrong: another name or other arguments
than the true ones, before any validation. Every sign of a form is damaged in turn: removed, doubled, swapped with the
next character, replaced by another sign. Exits 1 unless all intact calls are exact (in each form the model may be
asked about 2 of 1,000), no call is wrong, and no plain answer contains a call.
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

from midspan._schema.arguments import SchemaValidator
from midspan._schema.normalize import normalize
from midspan._types.parts import Text, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.prompted.reader import CallReader, Piece, RejectedCall
from midspan.providers.prompted.scanner import ToolIndex

Row = dict[str, Any]
Call = tuple[str, dict[str, Any]]
Write = Callable[[dict[str, Any]], str]
Form = Callable[[Write, Sequence[Call]], str]
Damage = Callable[[random.Random, Sequence[Call]], str]

SEED = 20_260_101
_COLUMNS = ("calls", "exact", "asked", "lost", "wrong", "valid")
_COUNTS = ("rows", "calls", "plain_not_exact", "damaged", "wrong", "wrong_valid", "answers", "false_calls", "failures")
_MAX_ASKED = 0.002
"""The share of intact calls that a form may ask about: a few true calls contradict their declaration, and a few values
look like damage in the form of Gemma 4."""


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    score = Score()
    for name in files:
        score.add_file(Path(name))
    return score.report()


class Score:
    """The counts of each form and damage."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[str]] = {}
        self.totals: Counter[str] = Counter()
        self._next_form = 0

    def report(self) -> int:
        width = max(map(len, self.rows), default=0)
        print(f"{'':{width}}  " + "  ".join(f"{column:>7}" for column in _COLUMNS))
        for name, counts in self.rows.items():
            print(f"{name:{width}}  " + "  ".join(f"{counts[column]:>7}" for column in _COLUMNS))
        intact = [counts for name, counts in self.rows.items() if name.endswith("plain")]
        self.totals["calls"] = self.rows["plain"]["calls"] if "plain" in self.rows else 0
        self.totals["plain_not_exact"] = sum(counts["calls"] - counts["exact"] for counts in intact)
        self.totals["wrong"] = sum(counts["wrong"] for counts in self.rows.values())
        self.totals["wrong_valid"] = sum(counts["valid"] for counts in self.rows.values())
        print(" ".join(f"{name}={self.totals[name]}" for name in _COUNTS))
        has_errors = any(self.totals[name] for name in ("wrong", "false_calls", "failures"))
        has_misses = any(counts["lost"] or counts["asked"] > _MAX_ASKED * counts["calls"] for counts in intact)
        return 1 if has_errors or has_misses or not self.totals["calls"] else 0

    def add_file(self, file: Path) -> None:
        for place, line in lines_of(file, self.fail):
            self.totals["rows"] += 1
            try:
                self.add_row(json.loads(line), file)
            except Exception as error:  # noqa: BLE001 - no row may end the script
                self.fail(f"{place}: a row of an unknown shape: {type(error).__name__}: {error}")

    def fail(self, what: str) -> None:
        print(f"FAIL {what}")
        self.totals["failures"] += 1

    def add_row(self, row: Row, file: Path) -> None:
        functions = list(row["functions"])
        for name in row.get("functions_ref") or ():
            functions += helper(file, "bfcl_multi_turn_functions.json")[name]
        tools = [
            ToolSpec(item["name"], item.get("description", ""), item.get("parameters") or {}) for item in functions
        ]
        dice = dice_of(row.get("id"))
        if row["expect"] == "no_call":
            self.add_answer(plain_answer(dice, row, tools), tools)
        for calls in answers_of(row, functions):
            for name, damage in DAMAGES.items():
                self.add(name, damage(dice, calls), calls, tools, dice)
            fits_tags = all(in_tags(value, tools, call[0], key) for call in calls for key, value in call[1].items())
            usable = {name: form for name, form in FORMS.items() if fits_tags or name not in TAGS}
            if not all(key.isidentifier() for _, arguments in calls for key in arguments):
                usable = {name: form for name, form in usable.items() if name not in PYTHON}
            for name, form in usable.items():
                for word, write in (WRITERS if name in JSON else {"plain": compact}).items():
                    self.add(f"{name}: {word}", around(dice, form(write, calls)), calls, tools, dice)
                self.add(f"{name}: cut", cut(dice, form(compact, calls), calls), calls, tools, dice)
            self.add_damaged_signs(list(usable.items()), calls, tools, dice)

    def add_answer(self, answer: str, tools: list[ToolSpec]) -> None:
        self.totals["answers"] += 1
        pieces = read(answer, tools)
        if any(not isinstance(piece, Text) for piece in pieces) or text_of(pieces) != answer:
            self.totals["false_calls"] += 1
            print(f"FALSE CALL {answer!r}: {pieces}")

    def add(self, name: str, text: str, calls: Sequence[Call], tools: list[ToolSpec], dice: random.Random) -> None:
        pieces = read(text, tools)
        self.compare(name, text, pieces, calls, tools)
        cuts = len(text.encode()) if name == "split at any byte" else dice.choice((1, 3, 12))
        if joined(read_split(text, tools, dice, cuts)) != joined(pieces):
            self.rows[name]["wrong"] += 1
            print(f"SPLIT {name}: another reading of {text!r}")

    def compare(self, name: str, text: str, pieces: list[Piece], calls: Sequence[Call], tools: list[ToolSpec]) -> None:
        counts = self.rows.setdefault(name, Counter())
        missing = list(calls)
        exact = 0
        for piece in pieces:
            if not isinstance(piece, ToolCall):
                continue
            place = next((at for at, call in enumerate(missing) if same(call, (piece.name, piece.arguments))), None)
            if place is None:
                is_valid = is_valid_call(piece, tools)
                counts["wrong"] += 1
                counts["valid"] += is_valid
                print(f"WRONG{' AND VALID' * is_valid} {name}: {piece.name}({piece.arguments!r}) read from {text!r}")
            else:
                exact += 1
                del missing[: place + 1]
        counts["calls"] += len(calls)
        counts["exact"] += exact
        is_asked = any(isinstance(piece, RejectedCall) for piece in pieces)
        counts["asked" if is_asked else "lost"] += len(calls) - exact

    def add_damaged_signs(
        self, forms: list[tuple[str, Form]], calls: Sequence[Call], tools: list[ToolSpec], dice: random.Random
    ) -> None:
        """Damage every sign of one form; each answer takes the next form."""
        name, form = forms[self._next_form % len(forms)]
        self._next_form += 1
        before, after = dice.choice(BEFORE), dice.choice(AFTER)
        write = dice.choice((compact, pretty))
        for text in damaged_signs(form(write, marked(calls)), dice):
            self.totals["damaged"] += 1
            whole = before + text + after
            self.compare(f"{name}: signs", whole, read(whole, tools), calls, tools)


def is_valid_call(call: ToolCall, tools: list[ToolSpec]) -> bool:
    parameters = next((tool.parameters for tool in tools if tool.name == call.name), None)
    return SchemaValidator(normalize(parameters or {})).accepts(call.arguments)


def dice_of(seed: object) -> random.Random:
    return random.Random(f"{SEED} {seed}")  # noqa: S311 - the same damages in every run, nothing secret


def answers_of(row: Row, functions: list[Row]) -> Iterator[list[Call]]:
    """Yield the true calls, one list for each answer of the model."""
    parameters = {item["name"]: item.get("parameters") or {} for item in functions}
    calls = row.get("calls") or []
    turns = calls if calls and isinstance(calls[0], list) else [calls]
    for turn in turns:
        known = [call for call in turn if call.get("name") in parameters]
        if known:
            yield [(call["name"], arguments_of(call, parameters[call["name"]])) for call in known]


def same(call: Call, other: Call) -> bool:
    """Whether two calls are the same, to the type: 1 is not 1.0, and not true."""
    return call[0] == other[0] and json.dumps(call[1], sort_keys=True) == json.dumps(other[1], sort_keys=True)


def read(text: str, tools: list[ToolSpec]) -> list[Piece]:
    reader = CallReader(tools)
    return [*reader.feed(text), *reader.end()]


def read_split(text: str, tools: list[ToolSpec], dice: random.Random, count: int) -> list[Piece]:
    """Read the text with its bytes cut at any place, also within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    reader = CallReader(tools)
    data = text.encode()
    places = range(len(data) + 1)
    cuts = sorted({0, *(places if count >= len(data) else dice.sample(places, count)), len(data)})
    pieces: list[Piece] = []
    for begin, end in pairwise(cuts):
        pieces += reader.feed(decoder.decode(data[begin:end]))
    return [*pieces, *reader.end()]


def joined(pieces: list[Piece]) -> list[Piece]:
    result: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Text) and result and isinstance(result[-1], Text):
            result[-1] = Text(result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


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


def plain_answer(dice: random.Random, row: Row, tools: list[ToolSpec]) -> str:
    """Return what a model says that calls nothing, although it may speak of tools."""
    question = str(row["question"][0][-1]["content"] if row.get("question") else "")[:300]
    question = re.sub(r"\s+", " ", question)
    name = tools[0].name if tools else "the_tool"
    data = json.dumps({"name": "Ada", "arguments": ["for", "against"], "score": 5})
    return dice.choice(
        (
            f"I'm sorry, none of my tools can help with this: {question}",
            f"You asked: “{question}” I can answer that without a tool.\n\n1. First (see above).\n2. Then {{that}}.",
            f"`{name}` does something else, so I did not call {name}(…). Could you tell me more?",
            f"In Python you could write:\n```python\nresult = {name}(1, 2)\nprint(result)\n```\nbut I cannot run it.",
            f"Here is the data:\n```json\n{data}\n```\nThat is all [1](https://example.org/a_(b)).",
            f"No tool call is needed. A tool call: that is what I would make if {name} fitted.",
            f"Action: none is required here.\nFinal Answer: {question}",
            f"[Note] {question}\n{{draft}} **Summary:** nothing to call.",
        )
    )


# How arguments are written, as JSON or nearly so.


def compact(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def pretty(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def single_quotes(arguments: dict[str, Any]) -> str:
    """Replace each double quote by a single one, whatever that does to apostrophes."""
    return compact(arguments).replace('"', "'")


def smart_quotes(arguments: dict[str, Any]) -> str:
    marks = iter("“”" * 100_000)
    return re.sub('"', lambda _: next(marks), compact(arguments))


def trailing_commas(arguments: dict[str, Any]) -> str:
    return written(arguments, '"', end=",")


def unquoted_keys(arguments: dict[str, Any]) -> str:
    return written(arguments, "")


def comments(arguments: dict[str, Any]) -> str:
    return written(arguments, '"', after=" // as asked\n", before="/* see {above} */ ")


def written(value: Any, quote: str, *, end: str = "", before: str = "", after: str = "") -> str:
    """Write JSON with other keys, commas and comments."""
    if isinstance(value, dict) and value:
        members = [
            f"{before}{name if quote == '' and name.isidentifier() else json.dumps(name)}: "
            + written(inner, quote, end=end, before=before, after=after)
            for name, inner in value.items()
        ]
        return "{" + (f",{after}" if after else ", ").join(members) + end + after + "}"
    if isinstance(value, list) and value:
        return "[" + ", ".join(written(item, quote, end=end, before=before, after=after) for item in value) + end + "]"
    return json.dumps(value, ensure_ascii=False)


def keywords(arguments: dict[str, Any], between: str = ", ") -> str:
    return between.join(f"{name}={inner!r}" for name, inner in arguments.items())


def gemma(value: Any) -> str:
    """Write a value as Gemma 4 does: keys without quotes, strings between special tokens."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}:{gemma(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(gemma, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def tag_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def in_tags(value: Any, tools: list[ToolSpec], name: str, key: str) -> bool:
    """Whether a value without quotes can be told from others: a string where one is wanted, else anything else."""
    properties = ToolIndex(tools).schema(name).all_properties
    if key not in properties or isinstance(value, str) != ("string" in properties[key].types):
        return False
    is_certain = properties[key].types == {"string"} and value != "null"
    return not isinstance(value, str) or (is_certain and not value.startswith(">") and not value.endswith("<"))


# The forms of models.


def lines(form: str = "TOOL_CALL: NAME(ARGUMENTS)", *, between: str = "\n", before: str = "", after: str = "") -> Form:
    def write_form(write: Write, calls: Sequence[Call]) -> str:
        texts = [form.replace("NAME", name).replace("ARGUMENTS", write(arguments)) for name, arguments in calls]
        return before + between.join(texts) + after

    return write_form


def python(form: str, *, between: str, before: str = "", after: str = "") -> Form:
    """Write keyword arguments, each on a line of its own where JSON would be on several lines."""

    def write_form(write: Write, calls: Sequence[Call]) -> str:
        write = (lambda arguments: keywords(arguments, ",\n    ")) if write is pretty else keywords
        return lines(form, between=between, before=before, after=after)(write, calls)

    return write_form


def tagged(call: str, parameter: str, *, before: str = "", after: str = "", between: str = "\n") -> Form:
    """Write each argument in tags of its own."""

    def write_form(_: Write, calls: Sequence[Call]) -> str:
        texts = []
        for name, arguments in calls:
            values = [
                parameter.replace("KEY", key)
                .replace("STRING", str(isinstance(value, str)).lower())
                .replace("VALUE", tag_text(value))
                for key, value in arguments.items()
            ]
            texts.append(call.replace("NAME", name).replace("PARAMETERS", "".join(values)))
        return before + between.join(texts) + after

    return write_form


def cut(dice: random.Random, text: str, calls: Sequence[Call]) -> str:
    """Break off the last call anywhere after its name."""
    last = text.rindex(calls[-1][0]) + len(calls[-1][0]) + 2
    return dice.choice(BEFORE) + text[: dice.randrange(last, len(text) + 1) if last <= len(text) else len(text)]


OBJECT = '{"name": "NAME", "arguments": ARGUMENTS}'
BAR, LOW = "\uff5c", "\u2581"


def token(words: str) -> str:
    return f"<{BAR}{LOW.join(words.split())}{BAR}>"


_DEEP = {"before": token("tool calls begin"), "after": token("tool calls end")}
_DSML = f"{BAR}DSML{BAR}"
JSON: dict[str, Form] = {
    "Hermes": lines(f"<tool_call>\n{OBJECT}\n</tool_call>"),
    "Hermes list": lines(OBJECT, between=", ", before="<tool_call>\n[", after="]\n</tool_call>"),
    "Llama": lines('<|python_tag|>{"name": "NAME", "parameters": ARGUMENTS}<|eom_id|>'),
    "Mistral": lines(OBJECT, between=", ", before="[TOOL_CALLS] [", after="]"),
    "Mistral 11": lines("[TOOL_CALLS]NAME[ARGS]ARGUMENTS", between=""),
    "DeepSeek": lines(
        f"{token('tool call begin')}function{token('tool sep')}NAME\n```json\nARGUMENTS\n```{token('tool call end')}",
        **_DEEP,
    ),
    "DeepSeek 3.1": lines(
        f"{token('tool call begin')}NAME{token('tool sep')}ARGUMENTS{token('tool call end')}", between="", **_DEEP
    ),
    "Kimi K2": lines(
        "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
        between="",
        before="<|tool_calls_section_begin|>",
        after="<|tool_calls_section_end|>",
    ),
    "Granite": lines(OBJECT, between=", ", before="<|tool_call|>[", after="]"),
    "InternLM": lines('<|action_start|><|plugin|>\n{"name": "NAME", "parameters": ARGUMENTS}<|action_end|>'),
    "gpt-oss": lines(
        "<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>"
    ),
    "ReAct": lines("Thought: I need NAME.\nAction: NAME\nAction Input: ARGUMENTS", between="\n\n", before="\n"),
    "function tag": lines("<function=NAME>ARGUMENTS</function>"),
    "fenced JSON": lines(f"```json\n{OBJECT}\n```", before="\n"),
    "bare JSON": lines(OBJECT, before="\n"),
    "leaked": lines("call:NAMEARGUMENTS"),
}
PYTHON: dict[str, Form] = {
    "keyword arguments": python("TOOL_CALL: NAME(ARGUMENTS)", between="\n"),
    "Llama list": python("NAME(ARGUMENTS)", between=", ", before="\n[", after="]"),
    "LFM2": python("NAME(ARGUMENTS)", between=", ", before="<|tool_call_start|>[", after="]<|tool_call_end|>"),
    "tool_code": python("print(default_api.NAME(ARGUMENTS))", between="\n", before="\n```tool_code\n", after="\n```"),
    "default_api": python("print(default_api.NAME(ARGUMENTS))", between="\n", before="\n"),
    "Gemma 4": lambda _, calls: lines("<|tool_call>call:NAMEARGUMENTS<tool_call|>", between="")(gemma, calls),
}
TAGS: dict[str, Form] = {
    "Qwen Coder": tagged(
        "<tool_call>\n<function=NAME>\nPARAMETERS</function>\n</tool_call>", "<parameter=KEY>\nVALUE\n</parameter>\n"
    ),
    "GLM": tagged(
        "<tool_call>NAME\nPARAMETERS</tool_call>", "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"
    ),
    "MiniMax": tagged(
        '<invoke name="NAME">\nPARAMETERS</invoke>', '<parameter name="KEY">VALUE</parameter>\n',
        before="<minimax:tool_call>\n", after="\n</minimax:tool_call>",
    ),
    "DeepSeek 3.2": tagged(
        f'<{_DSML}invoke name="NAME">\nPARAMETERS</{_DSML}invoke>',
        f'<{_DSML}parameter name="KEY" string="STRING">VALUE</{_DSML}parameter>\n',
        before=f"<{_DSML}function_calls>\n", after=f"\n</{_DSML}function_calls>",
    ),
}  # fmt: skip
FORMS: dict[str, Form] = {"TOOL_CALL": lines(), **JSON, **PYTHON, **TAGS}
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


# How signs are damaged.

OPEN, CLOSE = "\u27e6", "\u27e7"
"""They mark the strings of the arguments, whose signs are not those of a form."""
_SIGNS = frozenset("{}[]()<>:,\"'=|/`")
_OTHER_SIGNS = "{}[]():,\"'=<>"


def marked(calls: Sequence[Call]) -> list[Call]:
    return [(name, {key: _marked(value) for key, value in arguments.items()}) for name, arguments in calls]


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {f"{OPEN}{key}{CLOSE}": _marked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return f"{OPEN}{value}{CLOSE}" if isinstance(value, str) else value


def damaged_signs(marked_text: str, dice: random.Random) -> Iterator[str]:
    """Yield the text with one of its signs removed, doubled, swapped with the next character or replaced."""
    depth, text, places, strings = 0, "", [], set[int]()
    for character in marked_text:
        if character in (OPEN, CLOSE):
            depth += 1 if character == OPEN else -1
            continue
        if depth:
            strings.add(len(text))
        elif character in _SIGNS:
            places.append(len(text))
        text += character
    for at in places:
        sign, following = text[at], text[at + 1 : at + 2]
        yield text[:at] + text[at + 1 :]
        yield text[:at] + sign + text[at:]
        if following and following != sign and at + 1 not in strings:
            yield text[:at] + following + sign + text[at + 2 :]
        for other in dice.sample(_OTHER_SIGNS, 3):
            if other != sign:
                yield text[:at] + other + text[at + 1 :]


# How the form that the prompt asks for is damaged.


def with_prose(form: Form, write: Write = compact) -> Damage:
    return lambda dice, calls: around(dice, form(write, calls))


def without_sign(signs: str) -> Damage:
    """Remove one of these signs that hold the arguments together; those inside strings do not count."""

    def damage(dice: random.Random, calls: Sequence[Call]) -> str:
        body = lines()(compact, calls)
        hidden = re.sub(r'(?<=")(?:[^"\\]|\\.)*(?=")|TOOL_CALL:', lambda text: "_" * len(text[0]), body)
        at = dice.choice([place.start() for place in re.finditer(signs, hidden)] or [len(body)])
        return around(dice, body[:at] + body[at + 1 :])

    return damage


DAMAGES: dict[str, Damage] = {
    "plain": with_prose(lines()),
    "escaped to ASCII": with_prose(lines(), json.dumps),
    "split at any byte": with_prose(lines()),
    "in a code fence": with_prose(lines("```\nTOOL_CALL: NAME(ARGUMENTS)\n```")),
    "all in one fence": with_prose(lines(before="```tool\n", after="\n```")),
    "list and bold marks": with_prose(lines("1. **TOOL_CALL: NAME(ARGUMENTS)**")),
    "bold marker": with_prose(lines("- **TOOL_CALL:** `NAME(ARGUMENTS)`")),
    "brackets around": with_prose(lines("[TOOL_CALL: NAME(ARGUMENTS)]")),
    "marker in lower case": with_prose(lines("tool_call: NAME(ARGUMENTS)")),
    "spaces everywhere": with_prose(lines("TOOL_CALL :  NAME ( ARGUMENTS )")),
    "newlines inside": with_prose(lines(), pretty),
    "newlines around": with_prose(lines("TOOL_CALL: NAME(\nARGUMENTS\n)")),
    "raw line breaks in strings": with_prose(lines(), lambda arguments: compact(arguments).replace("\\n", "\n")),
    "trailing commas": with_prose(lines(), trailing_commas),
    "single quotes": with_prose(lines(), single_quotes),
    "Python literals": with_prose(lines(), repr),
    "smart quotes": with_prose(lines(), smart_quotes),
    "comments": with_prose(lines(), comments),
    "unquoted keys": with_prose(lines(), unquoted_keys),
    "text glued to the call": with_prose(lines("Sure.TOOL_CALL: NAME(ARGUMENTS)Done")),
    "two calls on a line": with_prose(lines(between=" ")),
    "calls without a space": with_prose(lines(between="")),
    "missing final parenthesis": with_prose(lines("TOOL_CALL: NAME(ARGUMENTS")),
    "missing final brace": with_prose(lines(), WRITERS["missing final brace"]),
    "missing brace and parenthesis": with_prose(lines("TOOL_CALL: NAME(ARGUMENTS"), WRITERS["missing final brace"]),
    "without parentheses": with_prose(lines("TOOL_CALL: NAME ARGUMENTS")),
    "braces twice": with_prose(lines("TOOL_CALL: NAME({ARGUMENTS})")),
    "a quote missing": without_sign('"'),
    "a bracket, colon or comma missing": without_sign(r"[{}\[\]:,]"),
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
