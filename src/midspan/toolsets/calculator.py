"""The tool `calculate`: exact arithmetic.

An expression is parsed with `ast.parse`, and a whitelist of nodes is evaluated. Nothing is run as code. Numbers are
Fractions while they are exact and small enough, otherwise Decimals of 40 digits.
"""

import ast
import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow, localcontext
from fractions import Fraction
from functools import partial, reduce
from inspect import signature
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.errors import ToolError
from midspan.tools.function import Tool, tool

_MAX_CHARS = 1_000
_MAX_DEPTH = 50
_MAX_DIGITS = 2_000
_MAX_BITS = int(_MAX_DIGITS * math.log2(10))
_MAX_FACTORIAL = 807
"""The largest number whose factorial has at most 2,000 digits."""
_MAX_EXACT_PLACES = 50
"""A fraction with more decimal places is rounded."""
_TOO_LARGE = f"the result has more than {_MAX_DIGITS:,} digits"
_TOO_DEEP = f"the expression is nested more than {_MAX_DEPTH} levels deep"

Number = Fraction | Decimal
"""A Fraction is exact; a Decimal is correct to about 40 digits, or to 15 after sin, cos and the like."""

_CONTEXT = Context(prec=40, Emax=_MAX_DIGITS - 1, Emin=-_MAX_DIGITS, traps=[InvalidOperation, DivisionByZero, Overflow])
_RELIABLE = Context(prec=35)
_NOISE = Decimal("1e-35")
_SHOWN = Context(prec=15)
_PLAIN_EXPONENTS = range(-7, 21)
"""Numbers outside of this range are shown with an exponent."""

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
    python, numbers = _to_python(expression)
    try:
        tree = ast.parse(python, mode="eval").body
        with localcontext(_CONTEXT):
            return _value(tree, numbers)
    except SyntaxError:
        raise ToolError("the expression is not valid; write it like (1 + 2) * 3 / 4") from None
    except (MemoryError, RecursionError):
        raise ToolError(_TOO_DEEP) from None
    except (Overflow, OverflowError):
        raise ToolError(_TOO_LARGE) from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (DecimalException, ValueError):
        raise ToolError("the result is not a real number; for the cube root of a negative number use cbrt") from None


_TOKEN = re.compile(
    r"""\s*(
      (?P<number> (?:[0-9][0-9_]*(?:\.[0-9_]*)? | \.[0-9][0-9_]*) (?:[eE][+-]?[0-9]+)? )
    | [A-Za-z_][A-Za-z0-9_]* | π | \*\* | // | [-+*/%^!(),] | [\u00d7\u00b7\u00f7\u2212]
    )\s*""",
    re.VERBOSE,
)
_PYTHON = {
    "^": "**",
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{MIDDLE DOT}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "π": "pi",
    "of": "*",
    "!": ".factorial",
    "%": ".percent",
}
"""How Python writes a token. `!` and percent follow their operand, as attributes do."""


def _to_python(expression: str) -> tuple[str, list[str]]:
    """Return the expression in Python syntax, where each number is replaced by its index, and the numbers."""
    tokens: list[str] = []
    numbers: list[str] = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            character = expression[position:].strip()[:1]
            hint = "; write digits as 0-9" if character.isdigit() else ""
            raise ToolError(f"unexpected character {character!r} at position {position + 1}{hint}")
        text, position = match[1], match.end()
        following = expression[position : position + 2]
        if match["number"]:
            tokens.append(str(len(numbers)))
            numbers.append(text)
        elif text == "%" and following[:1] in ("-", "\N{MINUS SIGN}"):
            raise ToolError("'% -' may be a remainder or a percentage; write 5 % (-3) or (5%) - 3")
        elif text == "%" and re.match(r"[\w.(]", following) and following.lower() != "of":
            tokens.append("%")  # between two operands: the remainder
        else:
            tokens.append(_PYTHON.get(text.lower(), text.lower()))
    return " ".join(tokens), numbers


def _value(node: ast.expr, numbers: list[str], depth: int = 1) -> Number:
    if depth > _MAX_DEPTH:
        raise ToolError(_TOO_DEEP)
    chain: list[ast.BinOp | ast.Attribute] = []
    while isinstance(node, ast.BinOp | ast.Attribute):  # 1+1+1+… is nested to the left; a loop needs no recursion
        chain.append(node)
        node = node.left if isinstance(node, ast.BinOp) else node.value
    value = _operand(node, numbers, depth + 1)
    for outer in reversed(chain):
        if isinstance(outer, ast.BinOp):
            value = _OPERATORS[type(outer.op)](value, _value(outer.right, numbers, depth + 1))
        else:
            value = _factorial(value) if outer.attr == "factorial" else _divide(value, Fraction(100))
    return value


def _operand(node: ast.expr, numbers: list[str], depth: int) -> Number:
    match node:
        case ast.Constant(value=int(index)):
            return _number(numbers[index])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, numbers, depth)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, numbers, depth)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            try:
                signature(_FUNCTIONS[name]).bind(*arguments)
            except TypeError:
                raise ToolError(f"wrong number of arguments for {name}: {len(arguments)}") from None
            return _FUNCTIONS[name](*[_value(argument, numbers, depth) for argument in arguments])
        case ast.Tuple():
            raise ToolError("unexpected comma; write numbers without thousands separators")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            known = f"functions: {', '.join(_FUNCTIONS)}; constants: {', '.join(_CONSTANTS)}"
            raise ToolError(f"unknown name {name!r}; {known}")
    raise ToolError("the expression is not arithmetic; write 2 * (3) for a product and sqrt(4) for a function")


def _number(text: str) -> Number:
    digits, _, exponent = text.replace("_", "").lower().partition("e")
    if len(exponent) > 6 or abs(int(exponent or 0)) > _MAX_DIGITS:
        raise ToolError(f"the exponent of {text[:40]} is too large")
    return _bounded(Fraction(digits) * Fraction(10) ** int(exponent or 0))


def _bounded(value: Fraction) -> Number:
    """The value, as a Decimal if it has too many digits to stay exact."""
    return value if _bits(value) <= _MAX_BITS else _decimal(value)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _decimal(value: Number) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value.numerator) / Decimal(value.denominator)


def _exact(value: Number) -> Fraction:
    """The value as a Fraction; a Decimal without its last digits, so that log(8, 2) is 3 and not less."""
    return value if isinstance(value, Fraction) else Fraction(_RELIABLE.plus(value))


def _calculate(operation: Callable[[Any, Any], Any], left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _bounded(operation(left, right))
    result: Decimal = operation(_decimal(left), _decimal(right))
    return result


def _add(left: Number, right: Number) -> Number:
    total = _calculate(operator.add, left, right)
    # If nearly all digits of two Decimals cancel out, only rounding errors are left: sqrt(2) * sqrt(2) - 2 is 0.
    is_noise = isinstance(total, Decimal) and abs(total) <= max(abs(_decimal(left)), abs(_decimal(right))) * _NOISE
    return Decimal(0) if is_noise else total


_multiply = partial(_calculate, operator.mul)
_divide = partial(_calculate, operator.truediv)


def _floor(value: Number) -> Number:
    return Fraction(math.floor(_exact(value)))


def _remainder(left: Number, right: Number) -> Number:
    """The remainder of a division rounded down, so it has the sign of the divisor."""
    return _add(left, -_multiply(right, _floor(_divide(left, right))))


def _power(base: Number, exponent: Number) -> Number:
    if not exponent:
        return Fraction(1)
    if exponent == Fraction(1, 2):
        return _sqrt(base)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        min_bits = abs(exponent.numerator) * (_bits(base) - 1)
        if min_bits <= _MAX_BITS:
            return _bounded(base**exponent.numerator)
    return _decimal(base) ** _decimal(exponent)


def _sqrt(value: Number) -> Number:
    if isinstance(value, Fraction) and value >= 0:
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root == value:
            return root
    return _decimal(value).sqrt()


def _cbrt(value: Number) -> Number:
    root = (abs(_decimal(value)) ** (Decimal(1) / 3)).copy_sign(_decimal(value))
    nearest = Fraction(round(root))
    return nearest if nearest**3 == value else root


def _factorial(value: Number) -> Number:
    number = _whole(value)
    if number > _MAX_FACTORIAL:
        raise ToolError(_TOO_LARGE)
    return Fraction(math.factorial(number))


def _whole(value: Number) -> int:
    number = _exact(value)
    if number.denominator != 1:
        raise ToolError("factorial, gcd, lcm and the digits of round take whole numbers")
    return number.numerator


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    """Round half away from zero."""
    if abs(_whole(digits)) > 100:
        raise ToolError("round takes at most 100 digits")
    unit = Fraction(10) ** -_whole(digits)
    rounded = math.floor(abs(_exact(value)) / unit + Fraction(1, 2)) * unit
    return _bounded(rounded if value >= 0 else -rounded)


def _sum(first: Number, *others: Number) -> Number:
    return reduce(_add, others, first)


def _lcm(first: Number, *others: Number) -> Number:
    return reduce(lambda left, right: _bounded(Fraction(math.lcm(_whole(left), _whole(right)))), others, first)


def _log(value: Number, base: Number | None = None) -> Number:
    if value <= 0:
        raise ToolError("only numbers above 0 have a logarithm")
    return _decimal(value).ln() if base is None else _divide(_log(value), _log(base))


def _circular(function: Callable[[float], float], largest: int | None = None) -> Callable[[Number], Number]:
    """A function of the math module, rounded so that sin(pi) is 0."""

    def calculate(value: Number) -> Number:
        if largest is not None and abs(_exact(value)) > largest:
            raise ToolError(f"angles above {largest:.0e} are too large")
        result = function(float(value))
        return Decimal(repr(result if abs(float(value)) < 1e-5 else round(result, 15)))

    return calculate


_sin, _cos = _circular(math.sin, 10**15), _circular(math.cos, 10**15)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_CONSTANTS: dict[str, Number] = {
    "pi": _PI,
    "e": Decimal("2.71828182845904523536028747135266249775724709369995957496697"),
    "tau": Decimal("6.28318530717958647692528676655900576839433879875021164194989"),
}
_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: _add,
    ast.Sub: lambda left, right: _add(left, -right),
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: lambda left, right: _floor(_divide(left, right)),
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "abs": abs,
    "round": _round,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "trunc": lambda value: _floor(value) if value >= 0 else -_floor(-value),
    "min": lambda first, *others: min([first, *others], key=_exact),
    "max": lambda first, *others: max([first, *others], key=_exact),
    "sum": _sum,
    "mean": lambda first, *others: _divide(_sum(first, *others), Fraction(1 + len(others))),
    "gcd": lambda first, *others: Fraction(math.gcd(*map(_whole, [first, *others]))),
    "lcm": _lcm,
    "factorial": _factorial,
    "exp": lambda value: _decimal(value).exp(),
    "ln": lambda value: _log(value, None),
    "log": _log,
    "log10": lambda value: _log(value, Fraction(10)),
    "log2": lambda value: _log(value, Fraction(2)),
    "sin": _sin,
    "cos": _cos,
    "tan": lambda value: _divide(_sin(value), _cos(value)),
    "asin": _circular(math.asin),
    "acos": _circular(math.acos),
    "atan": _circular(math.atan),
    "degrees": lambda value: _decimal(value) * 180 / _PI,
    "radians": lambda value: _decimal(value) * _PI / 180,
}


def _format(value: Number) -> tuple[str, bool]:
    """The number as text, and whether the text is exact."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return str(value.numerator), True
    is_exact = isinstance(value, Fraction) and (value * 10**_MAX_EXACT_PLACES).denominator == 1
    with localcontext(_CONTEXT, prec=2 * _MAX_DIGITS if is_exact else _CONTEXT.prec):
        shown = (_decimal(value) if is_exact else _SHOWN.plus(_decimal(value))).normalize()
    if not shown:
        return "0", is_exact
    return format(shown, "f" if shown.adjusted() in _PLAIN_EXPONENTS else "e").replace("e+", "e"), is_exact
