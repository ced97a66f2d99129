"""The tool `calculate`: exact arithmetic.

An expression is parsed with `ast.parse`, and a whitelist of nodes is evaluated. Nothing is run as code. Numbers are
Fractions while they are exact and not too long, otherwise floats.
"""

import ast
import decimal
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from inspect import signature
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.errors import ToolError
from midspan.tools.function import Tool, tool

_MAX_CHARS = 1_000
_MAX_DIGITS = 2_000
_MAX_BITS = int(_MAX_DIGITS * math.log2(10))
_MAX_FACTORIAL = 807
"""The largest number whose factorial has at most 2,000 digits."""
_MAX_EXACT_PLACES = 50
"""A fraction with more decimal places is rounded."""
_MAX_ANGLE = 1e15
_NOISE = 1e-14
_SHOWN_DIGITS = 15
_PLAIN_EXPONENTS = range(-7, 21)
"""Numbers outside of this range are shown with an exponent."""
_TOO_LARGE = "the number is too large"

Number = Fraction | float
"""A Fraction is exact, a float is correct to about 15 digits."""
Expression = Annotated[str, Meta(min_length=1, max_length=_MAX_CHARS)]


class Calculation(Struct, frozen=True):
    """The value of an expression."""

    result: str
    """Decimal digits. A string, because numbers in JSON have a limited size."""
    is_exact: bool
    """False if the result is rounded to 15 digits."""


def calculate(expression: Expression) -> Calculation:
    """Calculate the value of an arithmetic expression, exactly where that is possible.

    Operators: + - * / // (division rounded down) % (remainder) ** or ^ (power) ! (factorial), and parentheses.
    A percent sign after a number is a hundredth: 15% * 80, 15% of 80.
    Functions: sqrt cbrt abs round(x, digits) floor ceil trunc min max sum mean gcd lcm factorial exp ln log10 log2,
    log(x) to base e, log(x, base), sin cos tan asin acos atan in radians, radians(degrees), degrees(radians).
    Constants: pi e tau.
    Write numbers without thousands separators and multiplication with *.

    Args:
        expression: The expression, such as (1 + 2) * 3 / 4 or round(sqrt(2) * 100, 2).
    """
    return Calculation(*_format(evaluate(expression)))


def calculator_tool() -> Tool[..., Any]:
    """Return the tool `calculate`."""
    examples = [{"expression": "0.1 + 0.2"}, {"expression": "1200 * (1 + 3.5%) ** 10"}]
    return tool(reads="arithmetic", idempotent=True, examples=examples)(calculate)


def evaluate(expression: str) -> Number:
    """Return the value of an expression. Raises ToolError with a message for the model."""
    if len(expression) > _MAX_CHARS:
        raise ToolError(f"the expression has {len(expression):,} characters, the maximum is {_MAX_CHARS:,}")
    python = _to_python(expression)
    try:
        return _value(ast.parse(python, mode="eval").body, python)
    except SyntaxError:
        raise ToolError("the expression is not valid; write it like (1 + 2) * 3 / 4") from None
    except (MemoryError, RecursionError):
        raise ToolError("the expression is nested too deeply") from None
    except (OverflowError, decimal.Overflow):
        raise ToolError(_TOO_LARGE) from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (ValueError, decimal.InvalidOperation):
        raise ToolError("the result is not a real number; for the cube root of a negative number use cbrt") from None


_UNEXPECTED = re.compile(r"[^0-9a-z_.\s+*/%^!(),-]")
_PYTHON = str.maketrans(
    {
        "^": "**",
        "!": " .factorial",
        "π": "pi",
        "\N{MULTIPLICATION SIGN}": "*",
        "\N{MIDDLE DOT}": "*",
        "\N{DIVISION SIGN}": "/",
        "\N{MINUS SIGN}": "-",
    }
)
"""How Python writes a character. A factorial and a percent sign follow their operand, as attributes do."""


def _to_python(expression: str) -> str:
    text = " ".join(expression.lower().split()).translate(_PYTHON)
    if match := _UNEXPECTED.search(text):
        hint = "; write digits as 0-9" if match[0].isdigit() else ""
        raise ToolError(f"unexpected character {match[0]!r}{hint}")
    if re.search(r"% ?-", text):
        raise ToolError("'% -' may be a remainder or a percentage; write 5 % (-3) or (5%) - 3")
    text = re.sub(r"%(?! ?[\w.(])|%(?= ?of\b)", " .percent", text)  # not between two operands, or before «of»
    return re.sub(r"\bof\b", "*", text)


def _value(node: ast.expr, python: str) -> Number:
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            return _bounded(_OPERATORS[type(operation)](_value(left, python), _value(right, python)))
        case ast.Attribute(value=inner, attr="factorial"):
            return _factorial(_value(inner, python))
        case ast.Attribute(value=inner, attr="percent"):
            return _value(inner, python) / 100
        case ast.Constant():
            return _literal(python[node.col_offset : node.end_col_offset])  # all digits, unlike those of a float
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, python)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, python)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            try:
                signature(_FUNCTIONS[name]).bind(*arguments)
            except TypeError:
                raise ToolError(f"wrong number of arguments for {name}: {len(arguments)}") from None
            return _bounded(_FUNCTIONS[name](*[_value(argument, python) for argument in arguments]))
        case ast.Tuple():
            raise ToolError("unexpected comma; write numbers without thousands separators")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            known = f"functions: {', '.join(_FUNCTIONS)}; constants: {', '.join(_CONSTANTS)}"
            raise ToolError(f"unknown name {name!r}; {known}")
    raise ToolError("the expression is not arithmetic; write 2 * (3) for a product and sqrt(4) for a function")


def _literal(text: str) -> Number:
    digits, _, exponent = text.replace("_", "").partition("e")
    if len(exponent) > 6 or abs(int(exponent or 0)) > _MAX_DIGITS:
        raise ToolError(f"the exponent of {text[:40]} is too large")
    return _bounded(Fraction(digits) * Fraction(10) ** int(exponent or 0))


def _bounded(value: Number) -> Number:
    """The value, as a float if it has too many digits to stay exact."""
    return float(value) if isinstance(value, Fraction) and _bits(value) > _MAX_BITS else value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _reliable(value: Number) -> Fraction:
    """The value as a Fraction; a float without its last digits, so that log(8, 2) is 3 and not less."""
    return value if isinstance(value, Fraction) else Fraction(f"{value:.14g}")


def _whole(value: Number) -> int:
    number = _reliable(value)
    if number.denominator != 1:
        raise ToolError("factorial, gcd, lcm and the digits of round take whole numbers")
    return number.numerator


def _add(left: Number, right: Number) -> Number:
    total = left + right
    # If nearly all digits of two floats cancel out, only rounding errors are left: sqrt(2) * sqrt(2) - 2 is 0.
    is_noise = isinstance(total, float) and abs(total) <= abs(float(left)) * _NOISE
    return 0.0 if is_noise else total


def _floor(value: Number) -> Number:
    return Fraction(math.floor(_reliable(value)))


def _power(base: Number, exponent: Number) -> Number:
    if not exponent:
        return Fraction(1)
    if exponent == Fraction(1, 2):
        return _sqrt(base)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        min_bits = abs(exponent.numerator) * (_bits(base) - 1)
        if min_bits <= _MAX_BITS:
            return base**exponent.numerator
    # A float would lose digits: 1.0000001 ** 10000000.
    return float(_decimal(base) ** _decimal(exponent))


def _decimal(value: Number) -> Decimal:
    fraction = Fraction(value)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def _sqrt(value: Number) -> Number:
    if isinstance(value, Fraction) and value >= 0:
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root == value:
            return root
    return math.sqrt(value)


def _cbrt(value: Number) -> Number:
    root = math.cbrt(value)
    nearest = Fraction(round(root))
    return nearest if nearest**3 == value else root


def _factorial(value: Number) -> Number:
    if _whole(value) > _MAX_FACTORIAL:
        raise ToolError(_TOO_LARGE)
    return Fraction(math.factorial(_whole(value)))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    """Round half away from zero."""
    if abs(_whole(digits)) > 100:
        raise ToolError("round takes at most 100 digits")
    unit = Fraction(10) ** -_whole(digits)
    rounded = math.floor(abs(_reliable(value)) / unit + Fraction(1, 2)) * unit
    return rounded if value >= 0 else -rounded


def _log(value: Number, base: Number | None = None) -> Number:
    if value <= 0:
        raise ToolError("only numbers above 0 have a logarithm")
    return math.log(value) if base is None else math.log(value) / _log(base)


def _circular(function: Callable[[float], float]) -> Callable[[Number], Number]:
    """A function of the math module, rounded so that sin(pi) is 0."""

    def calculate(value: Number) -> Number:
        angle = float(value)
        if abs(angle) > _MAX_ANGLE:
            raise ToolError(f"angles above {_MAX_ANGLE:.0e} are too large")
        result = function(angle)
        return result if abs(angle) < 1e-5 else round(result, 15)

    return calculate


_sin, _cos = _circular(math.sin), _circular(math.cos)
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: _add,
    ast.Sub: lambda left, right: _add(left, -right),
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: _floor(left / right),
    ast.Mod: lambda left, right: _add(left, -right * _floor(left / right)),  # it has the sign of the divisor
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "abs": abs,
    "round": _round,
    "floor": _floor,
    "ceil": lambda value: Fraction(math.ceil(_reliable(value))),
    "trunc": lambda value: Fraction(math.trunc(_reliable(value))),
    "min": lambda first, *others: min([first, *others], key=_reliable),
    "max": lambda first, *others: max([first, *others], key=_reliable),
    "sum": lambda first, *others: reduce(_add, others, first),
    "mean": lambda first, *others: reduce(_add, others, first) / (1 + len(others)),
    "gcd": lambda first, *others: Fraction(math.gcd(*map(_whole, [first, *others]))),
    "lcm": lambda first, *others: Fraction(math.lcm(*map(_whole, [first, *others]))),
    "factorial": _factorial,
    "exp": math.exp,
    "ln": lambda value: _log(value, None),
    "log": _log,
    "log10": lambda value: _log(value, Fraction(10)),
    "log2": lambda value: _log(value, Fraction(2)),
    "sin": _sin,
    "cos": _cos,
    "tan": lambda value: _sin(value) / _cos(value),
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "degrees": math.degrees,
    "radians": math.radians,
}


def _format(value: Number) -> tuple[str, bool]:
    """The number as text, and whether the text is exact."""
    is_exact = isinstance(value, Fraction) and (value * 10**_MAX_EXACT_PLACES).denominator == 1
    if is_exact and value == int(value):
        return str(int(value)), True
    with localcontext(prec=2 * _MAX_DIGITS if is_exact else _SHOWN_DIGITS):
        shown = _decimal(value).normalize()
    if not shown:
        return "0", is_exact
    return format(shown, "f" if shown.adjusted() in _PLAIN_EXPONENTS else "e").replace("e+", "e"), is_exact
