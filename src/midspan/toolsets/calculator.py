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
_SHOWN_DIGITS = 15
_MAX_RELIABLE = 10**14
"""Only 14 digits of a float are surely right, so a larger one has no reliable fraction."""
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
    Functions: sqrt abs round(x, digits) floor ceil min max exp ln log10 log2, log(x) to base e, log(x, base),
    sin cos tan asin acos atan in radians, radians(degrees), degrees(radians).
    Constants: pi e.
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
        raise ToolError("the result is not a real number") from None


_UNEXPECTED = re.compile(r"[^0-9a-z_.\s+*/%^!(),-]")
_LARGE_EXPONENT = re.compile(r"[0-9.]e[+-]?[0-9]{5}")
_PYTHON = str.maketrans(
    {"^": "**", "!": " .factorial", "π": "pi", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"}
)
"""How Python writes a character. A factorial and a percent sign follow their operand, as attributes do."""


def _to_python(expression: str) -> str:
    text = " ".join(expression.lower().split()).translate(_PYTHON)
    if match := _UNEXPECTED.search(text):
        raise ToolError(f"unexpected character {match[0]!r}")
    if _LARGE_EXPONENT.search(text):
        raise ToolError("an exponent has at most 4 digits")
    if re.search(r"\b0[box]", text):
        raise ToolError("write numbers in decimal digits")
    if re.search(r"% ?-", text):
        raise ToolError("'% -' may be a remainder or a percentage; write 5 % (-3) or (5%) - 3")
    text = re.sub(r"%(?! ?[\w.(])|%(?= ?of\b)", " .percent", text)  # not between two operands, or before "of"
    return re.sub(r"\bof\b", "*", text)


def _value(node: ast.expr, python: str) -> Number:
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            return _bounded(_OPERATORS[type(operation)](_value(left, python), _value(right, python)))
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(operand, python))
        case ast.Attribute(value=operand, attr=suffix) if suffix in _SUFFIXES:
            return _SUFFIXES[suffix](_value(operand, python))
        case ast.Constant():
            return _bounded(Fraction(python[node.col_offset : node.end_col_offset]))  # all digits, unlike a float
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_value(argument, python) for argument in arguments]
            try:
                return _bounded(_FUNCTIONS[name](*values))
            except TypeError:
                raise ToolError(f"wrong number of arguments for {name}: {len(values)}") from None
        case ast.Tuple():
            raise ToolError("unexpected comma; write numbers without thousands separators")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            known = f"functions: {', '.join(_FUNCTIONS)}; constants: {', '.join(_CONSTANTS)}"
            raise ToolError(f"unknown name {name!r}; {known}")
    raise ToolError("the expression is not arithmetic; write 2 * (3) for a product and sqrt(4) for a function")


def _bounded(value: Number) -> Number:
    """The value, as a float if it has too many digits to stay exact. Raises OverflowError if it is infinite."""
    if isinstance(value, Fraction) and _bits(value) <= _MAX_BITS:
        return value
    if math.isinf(number := float(value)):
        raise OverflowError
    return number


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _reliable(value: Number) -> Fraction:
    """The value as a Fraction; a float without its last digits, so that log(1000, 10) is 3 and not less."""
    if isinstance(value, float) and abs(value) >= _MAX_RELIABLE:
        raise ToolError(f"cannot round {value:.14g} or find its remainder: only its first 14 digits are known")
    return value if isinstance(value, Fraction) else Fraction(f"{value:.14g}")


def _whole(value: Number) -> int:
    number = _reliable(value)
    if number.denominator != 1:
        raise ToolError("factorials and the digits of round are whole numbers")
    return number.numerator


def _floor(value: Number) -> Number:
    return Fraction(math.floor(_reliable(value)))


def _remainder(left: Number, right: Number) -> Number:
    _reliable(left)  # raises an error if it is not
    return left - right * _floor(left / right)  # it has the sign of the divisor


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


def _factorial(value: Number) -> Number:
    if _whole(value) > _MAX_FACTORIAL:
        raise ToolError(_TOO_LARGE)
    return Fraction(math.factorial(_whole(value)))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    """Round half away from zero."""
    places = _whole(digits)
    if abs(places) > _MAX_EXACT_PLACES:
        raise ToolError(f"round takes at most {_MAX_EXACT_PLACES} digits")
    unit, size = Fraction(10) ** -places, abs(_reliable(value))
    if isinstance(value, float) and size / unit >= _MAX_RELIABLE:  # fewer places are known
        return value
    rounded = math.floor(size / unit + Fraction(1, 2)) * unit
    return rounded if value >= 0 else -rounded


_CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: _floor(left / right),
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_SUFFIXES: dict[str, Callable[[Any], Number]] = {"factorial": _factorial, "percent": lambda value: value / 100}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "abs": abs,
    "round": _round,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "min": min,
    "max": max,
    "ln": math.log,
    "sin": lambda angle: round(math.sin(angle), _SHOWN_DIGITS),  # so that sin(pi) is 0
    "cos": lambda angle: round(math.cos(angle), _SHOWN_DIGITS),
    "tan": lambda angle: _FUNCTIONS["sin"](angle) / _FUNCTIONS["cos"](angle),
    **{name: getattr(math, name) for name in ("exp", "log", "log10", "log2", "asin", "acos", "atan")},
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
