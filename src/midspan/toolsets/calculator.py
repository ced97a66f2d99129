"""The tool `calculate`: decimal arithmetic.

An expression is parsed with `ast.parse`, and a whitelist of nodes is evaluated. Nothing is run as code. The context of
`decimal` limits the size of numbers, and its flag Inexact tells whether a number was rounded.
"""

import ast
import decimal
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.errors import ToolError
from midspan.tools.function import Tool, tool

_MAX_DIGITS = 500
_SHOWN_DIGITS = 15
_PLAIN_EXPONENTS = range(-7, 21)
"""Numbers outside of this range are shown with an exponent."""

_CONTEXT = decimal.Context(
    prec=_MAX_DIGITS,
    rounding=decimal.ROUND_HALF_UP,
    Emin=-2_000,
    Emax=2_000,
    traps=[decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow],
)
_RELIABLE = decimal.Context(prec=_MAX_DIGITS - 10)
"""Without the digits that are wrong after a few rounded operations, so that floor(log(1000, 10)) is 3."""

Expression = Annotated[str, Meta(min_length=1, max_length=1_000)]


class Calculation(Struct, frozen=True):
    """The value of an expression."""

    result: str
    """Decimal digits. A string, because numbers in JSON have a limited size."""
    is_exact: bool
    """False if the result is rounded to 15 digits."""


def calculate(expression: Expression) -> Calculation:
    """Calculate the value of an arithmetic expression, exactly where that is possible.

    Operators: + - * / // (division rounded down) % (remainder) ** or ^ (power), and parentheses.
    A percent sign after a number is a hundredth: 15% * 80, 15% of 80.
    Functions: sqrt abs round(x, digits) floor ceil min max exp ln log10 log2, log(x) to base e, log(x, base),
    sin cos tan asin acos atan in radians, radians(degrees), degrees(radians).
    Constants: pi e.
    Write numbers without thousands separators and multiplication with *.

    Args:
        expression: The expression, such as (1 + 2) * 3 / 4 or round(sqrt(2) * 100, 2).
    """
    python = _to_python(expression)
    try:
        with decimal.localcontext(_CONTEXT) as context:
            value = _value(ast.parse(python, mode="eval").body, python)
            return _format(value, is_exact=not context.flags[decimal.Inexact])
    except SyntaxError:
        raise ToolError("the expression is not valid; write it like (1 + 2) * 3 / 4") from None
    except (MemoryError, RecursionError):
        raise ToolError("the expression is nested too deeply") from None
    except (OverflowError, decimal.Overflow):
        raise ToolError("the number is too large") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (ValueError, decimal.InvalidOperation):
        raise ToolError(f"the result is not a real number of at most {_MAX_DIGITS} digits") from None


def calculator_tool() -> Tool[..., Any]:
    """Return the tool `calculate`."""
    examples = [{"expression": "0.1 + 0.2"}, {"expression": "1200 * (1 + 3.5%) ** 10"}]
    return tool(reads="arithmetic", idempotent=True, examples=examples)(calculate)


_UNEXPECTED = re.compile(r"[^0-9a-z_.\s+*/%^(),-]")
_PYTHON = str.maketrans({"^": "**", "π": "pi", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"})
"""How Python writes a character."""


def _to_python(expression: str) -> str:
    text = " ".join(expression.lower().split()).translate(_PYTHON)
    if match := _UNEXPECTED.search(text):
        raise ToolError(f"unexpected character {match[0]!r}")
    if re.search(r"% ?-", text):
        raise ToolError("'% -' may be a remainder or a percentage; write 5 % (-3) or (5%) - 3")
    # An attribute follows its operand as a percent sign does. Between two operands, the sign is the remainder.
    text = re.sub(r"%(?! ?[\w.(])|%(?= ?of\b)", " .percent", text)
    return re.sub(r"\bof\b", "*", text)


def _value(node: ast.expr, python: str) -> Decimal:
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            value = _OPERATORS[type(operation)](_value(left, python), _value(right, python))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand, python) * (-1 if isinstance(sign, ast.USub) else 1)
        case ast.Attribute(value=operand, attr="percent"):
            value = _value(operand, python) / 100
        case ast.Constant():
            value = Decimal(python[node.col_offset : node.end_col_offset])  # all digits, unlike a float
        case ast.Name(id=name) if name in _CONSTANTS:
            value = round(Decimal(_CONSTANTS[name]), _SHOWN_DIGITS)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_value(argument, python) for argument in arguments]
            try:
                value = _FUNCTIONS[name](*values)
            except TypeError:
                raise ToolError(f"wrong number of arguments for {name}: {len(values)}") from None
        case ast.Tuple():
            raise ToolError("unexpected comma; write numbers without thousands separators")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            known = f"functions: {', '.join(_FUNCTIONS)}; constants: {', '.join(_CONSTANTS)}"
            raise ToolError(f"unknown name {name!r}; {known}")
        case _:
            raise ToolError("the expression is not arithmetic; write 2 * (3) for a product and sqrt(4) for a function")
    if not value.is_finite():  # such as 0 ** -1
        raise ValueError
    return +value  # which applies the limits of the context


def _modulo(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise ZeroDivisionError
    remainder = left % right
    return remainder + right if remainder * right < 0 else remainder  # it has the sign of the divisor


def _floor(value: Decimal) -> Decimal:
    if decimal.getcontext().flags[decimal.Inexact]:
        value = _RELIABLE.plus(value)
    return value.to_integral_value(decimal.ROUND_FLOOR)


def _round(value: Decimal, digits: Decimal = Decimal(0)) -> Decimal:
    """Round half away from zero. The result is exact."""
    return value.quantize(Decimal(1).scaleb(-digits), context=_CONTEXT.copy())


def _with_floats(function: Callable[[float], float]) -> Callable[[Decimal], Decimal]:
    """Return a function of the math module for Decimals. It is rounded, so that sin(pi) is 0."""
    return lambda value: round(Decimal(function(float(value))), _SHOWN_DIGITS)


_CONSTANTS = {"pi": math.pi, "e": math.e}
_FLOAT_FUNCTIONS = ("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: (left - _modulo(left, right)) / right,
    ast.Mod: _modulo,
    ast.Pow: lambda base, exponent: base**exponent if exponent else Decimal(1),  # also of 0
}
_FUNCTIONS: dict[str, Callable[..., Decimal]] = {
    "sqrt": Decimal.sqrt,
    "abs": abs,
    "round": _round,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "min": min,
    "max": max,
    "exp": Decimal.exp,
    "ln": Decimal.ln,
    "log": lambda value, base=None: value.ln() / base.ln() if base is not None else value.ln(),
    "log10": Decimal.log10,
    "log2": lambda value: value.ln() / Decimal(2).ln(),
    **{name: _with_floats(getattr(math, name)) for name in _FLOAT_FUNCTIONS},
}


def _format(value: Decimal, *, is_exact: bool) -> Calculation:
    shown = value.normalize() if is_exact else value.normalize(decimal.Context(prec=_SHOWN_DIGITS))
    if not shown:
        return Calculation("0", is_exact)
    is_plain = shown.adjusted() in _PLAIN_EXPONENTS or (is_exact and shown == shown.to_integral_value())
    return Calculation(format(shown, "f" if is_plain else "e").replace("e+", "e"), is_exact)
