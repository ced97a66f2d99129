import asyncio
import math
import operator
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._types.parts import ToolCall
from midspan._types.specs import Effects
from midspan.errors import ToolError
from midspan.tools.execution import execute
from midspan.toolsets.calculator import calculate, calculator_tool, evaluate


def value(expression: str) -> str:
    return calculate(expression).result


def problem(expression: str) -> str:
    with pytest.raises(ToolError) as caught:
        calculate(expression)
    words = str(caught.value)
    assert "\n" not in words
    return words


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1.10 * 3", "3.3"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("10 - 4 - 3", "3"),
        ("100 / 10 / 2", "5"),
        ("7 // 2 * 2", "6"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("7 % (-3)", "-2"),
        ("5.5 % 2", "1.5"),
        ("2 ** 3 ** 2", "512"),
        ("2 ^ 10", "1024"),
        ("-2 ** 2", "-4"),
        ("(-2) ** 2", "4"),
        ("2 ** -1", "0.5"),
        ("0 ** 0", "1"),
        ("--5", "5"),
        ("2 - -3", "5"),
        ("2*-3", "-6"),
        ("5!", "120"),
        ("2 ^ 3!", "64"),
        ("-3!", "-6"),
        ("15%", "0.15"),
        ("15% of 80", "12"),
        ("80 * 15%", "12"),
        ("(1 + 2)%", "0.03"),
        ("100 + 10% + 1", "101.1"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("1_000_000", "1000000"),
        (".5 + 5.", "5.5"),
        ("6 \N{MULTIPLICATION SIGN} 7 \N{DIVISION SIGN} 2 \N{MINUS SIGN} 1", "20"),
        ("1/8", "0.125"),
        ("1/2**40", "9.094947017729282379150390625e-13"),
        ("1200 * (1 + 3.5%) ** 10", "1692.71851274534661901463671875"),
        ("sqrt(16)", "4"),
        ("sqrt(0)", "0"),
        ("sqrt(2.25)", "1.5"),
        ("4 ** 0.5", "2"),
        ("abs(-3.5)", "3.5"),
        ("round(2.5)", "3"),
        ("round(0.5)", "1"),
        ("round(-2.5)", "-3"),
        ("round(2.675, 2)", "2.68"),
        ("round(1.5, 50)", "1.5"),
        ("round(1234, -2)", "1200"),
        ("floor(-1.5)", "-2"),
        ("ceil(-1.5)", "-1"),
        ("min(3, 1, 2)", "1"),
        ("max(3, 1, 2)", "3"),
        ("20!", "2432902008176640000"),
        ("SQRT(9)", "3"),
        ("sqrt(" * 150 + "1" + ")" * 150, "1"),
        ("floor(pi)", "3"),
        ("floor(sqrt(3) * sqrt(3))", "3"),
        ("floor(log(1000, 10))", "3"),
        ("ceil(log(8, 2))", "3"),
        ("(sqrt(2) * sqrt(2))!", "2"),
    ],
)
def test_exact_results_are_shown_in_full(expression: str, expected: str) -> None:
    calculation = calculate(expression)
    assert (calculation.result, calculation.is_exact) == (expected, True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1/3", "0.333333333333333"),
        ("2/3", "0.666666666666667"),
        ("1/7**800", "8.34772221242772e-677"),
        ("sqrt(2)", "1.4142135623731"),
        ("sqrt(2) ** 2", "2"),
        ("sqrt(pi)", "1.77245385090552"),
        ("2 ** 0.25", "1.18920711500272"),
        ("pi", "3.14159265358979"),
        ("2 * π - 2 * pi", "0"),
        ("e", "2.71828182845905"),
        ("exp(1) - e", "0"),
        ("exp(-100000)", "0"),
        ("ln(e)", "1"),
        ("log(8, 2)", "3"),
        ("log2(1024)", "10"),
        ("log10(1000)", "3"),
        ("log(10)", "2.30258509299405"),
        ("sin(pi)", "0"),
        ("sin(pi/6)", "0.5"),
        ("cos(pi/2)", "0"),
        ("cos(1e15)", "-0.51319373778697"),
        ("tan(pi/4)", "1"),
        ("asin(1)", "1.5707963267949"),
        ("acos(-1)", "3.14159265358979"),
        ("atan(1) * 4", "3.14159265358979"),
        ("atan(-1e300)", "-1.5707963267949"),
        ("degrees(pi)", "180"),
        ("sin(radians(30))", "0.5"),
        ("1.0000001 ** 10000000", "2.71828169254497"),
        ("2e20 * pi", "628318530717958647693"),
        ("round(sqrt(2), 14)", "1.4142135623731"),
        ("round(-sqrt(2) * 10 ** 13, 2)", "-14142135623730.9"),
    ],
)
def test_inexact_results_are_rounded_and_marked(expression: str, expected: str) -> None:
    calculation = calculate(expression)
    assert calculation.is_exact is False
    assert calculation.result == expected or math.isclose(float(calculation.result), float(expected), rel_tol=1e-14)


def test_integers_keep_all_their_digits() -> None:
    assert value("2 ** 1000") == str(2**1000)
    assert value("2 ** 6642") == str(2**6642)
    assert problem("2 ** 6643") == "the number is too large"
    assert problem("1 / 99999.5 ** 99999") == "the number is too large"
    assert problem("99999.5 ** 99999 - 99999.5 ** 99999") == "the number is too large"
    assert value("1e400") == "1" + "0" * 400
    assert value("807!") == str(math.factorial(807))
    assert value("99999999999999999999 * 99999999999999999999") == str((10**20 - 1) ** 2)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "the expression is not valid"),
        ("1 +", "the expression is not valid; write it like (1 + 2) * 3 / 4"),
        ("1 + * 2", "the expression is not valid"),
        ("1 2", "the expression is not valid"),
        ("2pi", "the expression is not valid"),
        ("(1 + 2", "the expression is not valid"),
        ("(1 2)", "the expression is not valid"),
        ("1)", "the expression is not valid"),
        ("1.2.3", "the expression is not valid"),
        ("sqrt 4", "the expression is not valid"),
        ("2(3)", "not arithmetic; write 2 * (3) for a product"),
        ("sqrt", "not arithmetic; write 2 * (3) for a product and sqrt(4) for a function"),
        ("1 and 2", "not arithmetic"),
        ("max(*1)", "not arithmetic"),
        ("max(**1)", "not arithmetic"),
        ("1,000", "unexpected comma; write numbers without thousands separators"),
        ("foo(1)", "unknown name 'foo'; functions: sqrt, "),
        ("x + 1", "unknown name 'x'; functions: "),
        ("sqrt(1, 2)", "wrong number of arguments for sqrt: 2"),
        ("round()", "wrong number of arguments for round: 0"),
        ("max()", "wrong number of arguments for max: 0"),
        ("1 + 1 / (3 - 3)", "division by zero"),
        ("5 % 0", "division by zero"),
        ("5 // 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("sqrt(-1)", "not a real number"),
        ("(-8) ** (1/3)", "not a real number"),
        ("ln(0)", "not a real number"),
        ("log10(-1)", "not a real number"),
        ("log(8, 1)", "division by zero"),
        ("asin(2)", "not a real number"),
        ("tan(pi/2)", "division by zero"),
        ("2.5!", "are whole numbers"),
        ("(-1)!", "not a real number"),
        ("round(1, 0.5)", "are whole numbers"),
        ("round(1, 51)", "at most 50 digits"),
        ("5 % -3", "'% -' may be a remainder or a percentage; write 5 % (-3) or (5%) - 3"),
        ("2 = 2", "unexpected character '='"),
        (
            "floor(sqrt(2) * 10 ** 20)",
            "cannot round 1.4142135623731e+20 or find its remainder: only its first 14 digits",
        ),
        ("ceil(sqrt(2) * 10 ** 20)", "cannot round -1.4142135623731e+20"),
        ("round(sqrt(2) * 10 ** 20)", "cannot round 1.4142135623731e+20"),
        ("sqrt(2) * 10 ** 20 // 7", "cannot round 2.020305089104"),
        ("sqrt(2) * 10 ** 20 % 7", "cannot round 1.4142135623731e+20"),
        ("sqrt(2) * 10 ** 14 % 7", "cannot round 1.4142135623731e+14"),
        ("1e-10000", "an exponent has at most 4 digits"),
        ("0xff", "write numbers in decimal digits"),
    ],
)
def test_mistake_is_reported_in_one_sentence(expression: str, message: str) -> None:
    assert message in problem(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "9**9**9",
        "10**2001",
        "1e1999*10",
        "100000!",
        "808!",
        "3!!!!",
        "((9!)!)!",
        "1e2001",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "(" * 100_000,
        "(" * 1000,
        "(" * 400 + "1" + ")" * 400,
        "-" * 999 + "1",
        "2**" * 300 + "1",
        "exp(" * 40 + "1" + ")" * 40,
        "exp(1e1900)",
        "2**1e1900",
        "1.0001**1e300",
        "٣ + ٤",
        "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH PLUS SIGN}1",
        "²",
        "\x00",
        "\ud800",
        "1\u202e2",
        "nan",
        "inf",
        "True",
        "__import__('os').system('true')",
        "().__class__",
        "lambda: 1",
        "1 if 1 else 2",
        "[1]",
        "'a' * 9999999999",
    ],
)
def test_hostile_expression_is_rejected_in_one_sentence(expression: str) -> None:
    assert 10 < len(problem(expression)) < 500


@pytest.mark.parametrize(
    "expression",
    [
        "*".join(["99999999"] * 111),
        "+".join(f"1/{number}" for number in range(1, 170)),
        "*".join(["1e-300", "1e300"] * 70),
        "(1/3)**1000",
        "1/" * 499 + "7",
        "sin(" * 40 + "1e15" + ")" * 40,
        "max(" + ",".join(["exp(9)"] * 120) + ")",
        "1.5e-1999",
        "floor(exp(-4000))",
        "(1e1999 + 0.5) // 7",
        "1" + "%" * 400,
        "1" * 1000,
        "0." + "0" * 900 + "1",
    ],
)
def test_long_expression_is_evaluated(expression: str) -> None:
    assert calculate(expression).result


def test_tool_returns_results_and_errors_to_the_model() -> None:
    tool = calculator_tool()

    def ask(expression: Any) -> Any:
        return asyncio.run(execute(tool, ToolCall("1", "calculate", {"expression": expression})))

    assert ask("0.1 + 0.2").value == {"result": "0.3", "is_exact": True}
    assert ask("2 ** 500").value["result"] == str(2**500)
    assert (ask("1/0").is_error, ask("1/0").value) == (True, "division by zero")
    assert ask("(" * 100_000).value.startswith("invalid parameters: expression: ")
    assert ask("").value.startswith("invalid parameters: expression: ")


def test_tool_declares_itself_read_only_and_idempotent() -> None:
    spec = calculator_tool().spec
    assert (spec.name, spec.effects) == ("calculate", Effects(reads=("arithmetic",), idempotent=True))
    assert spec.description.startswith("Calculate the value")
    assert spec.parameters is not None
    assert spec.parameters["properties"]["expression"]["description"].startswith("The expression, such as")


Tree = tuple[str, Fraction]
"""An expression and what it is worth."""

_OPERATORS: dict[str, Callable[[Fraction, Fraction], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


def literal(number: Decimal) -> Tree:
    return f"{number:f}", Fraction(number)


def joined(left: Tree, sign: str, right: Tree) -> Tree:
    if not right[1] and sign in ("/", "//", "%"):
        sign = "+"
    return f"({left[0]}) {sign} ({right[0]})", Fraction(_OPERATORS[sign](left[1], right[1]))


def larger(trees: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return (
        st.builds(joined, trees, st.sampled_from(list(_OPERATORS)), trees)
        | trees.map(lambda tree: (f"-({tree[0]})", -tree[1]))
        | trees.map(lambda tree: (f"abs({tree[0]})", abs(tree[1])))
        | trees.map(lambda tree: (f"({tree[0]})%", tree[1] / 100))
        | st.tuples(trees, st.integers(0, 5)).map(lambda pair: (f"({pair[0][0]}) ** {pair[1]}", pair[0][1] ** pair[1]))
        | st.lists(trees, min_size=2, max_size=3).map(
            lambda trees: (f"max({', '.join(text for text, _ in trees)})", max(worth for _, worth in trees))
        )
    )


NUMBERS = st.decimals(0, 10**6, places=3).map(literal) | st.integers(0, 10**9).map(lambda n: literal(Decimal(n)))


@given(st.recursive(NUMBERS, larger, max_leaves=8))
def test_value_agrees_with_fractions(tree: Tree) -> None:
    expression, worth = tree
    if len(expression) > 1000:
        return
    found = evaluate(expression)
    if isinstance(found, Fraction):
        assert found == worth
    else:
        assert math.isclose(found, worth, rel_tol=1e-12)
    shown = calculate(expression)
    if shown.is_exact:
        assert Fraction(shown.result) == worth
    elif worth:
        assert abs(Fraction(shown.result) - worth) <= abs(worth) / 10**14


FLAT = st.lists(
    st.tuples(st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), st.sampled_from(["", "-"]), st.integers(1, 9)),
    max_size=6,
)


@given(st.integers(1, 9), FLAT)
def test_operators_have_the_precedence_of_python(first: int, rest: list[tuple[str, str, int]]) -> None:
    parts = [(sign, "" if sign in ("%", "**") else minus, number) for sign, minus, number in rest]
    powers = [sign for sign, _, _ in parts if sign == "**"]
    if len(powers) > 1:
        return  # towers of powers grow beyond what can be compared
    expression = str(first) + "".join(f" {sign} {minus}{number}" for sign, minus, number in parts)
    exact = f"F({first})" + "".join(f" {sign} {minus}F({number})" for sign, minus, number in parts)
    try:
        worth = eval(exact, {"F": Fraction})
    except ZeroDivisionError:
        assert "division by zero" in problem(expression)
        return
    assert evaluate(expression) == worth


ANGLES = st.floats(-1000, 1000).map(lambda angle: round(angle, 9))


@given(st.sampled_from(["sin", "cos", "atan", "exp", "sqrt", "ln", "log10", "log2"]), ANGLES)
def test_functions_agree_with_the_math_module(name: str, number: float) -> None:
    number = number / 2 if name == "exp" else number
    if name in ("sqrt", "ln", "log10", "log2"):
        number = abs(number) + 1e-9
    known = math.log(number) if name == "ln" else getattr(math, name)(number)
    # What cancels out is known to the math module only as far as its numbers go.
    assert math.isclose(float(value(f"{name}({Decimal(number):f})")), known, rel_tol=1e-12, abs_tol=1e-12)


@given(st.text("0123456789.+-*/%^!(), episqrtmax", max_size=60) | st.text(max_size=30))
def test_any_text_gives_a_value_or_an_error(text: str) -> None:
    with suppress(ToolError):
        assert calculate(text).result
