"""The functions and constants that an expression may use, by name."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

from midspan.errors import ToolError
from midspan.toolsets.calculator.arithmetic import Number, add, bounded, divide, exact, factorial, floor, inexact, root
from midspan.toolsets.calculator.trigonometry import PI, arctangent, cosine, sine

_MANY = 1_000
_MOST_PLACES = 100


class Function(Struct, frozen=True):
    """What is called, and with how many numbers."""

    call: Callable[..., Number]
    least: int = 1
    most: int = 1

    @property
    def takes(self) -> str:
        if self.most == _MANY:
            return f"{self.least} or more numbers"
        return f"{self.least} number" if self.most == 1 else f"{self.least} or {self.most} numbers"


def _absolute(value: Number) -> Number:
    return -value if value < 0 else value


def _ceil(value: Number) -> Number:
    return -floor(-value)


def _truncated(value: Number) -> Number:
    return floor(value) if value >= 0 else _ceil(value)


def _rounded(value: Number, places: Number = Fraction(0)) -> Number:
    """Rounded as at school: a half goes away from zero."""
    digits = _whole(places, "the number of digits to round to")
    if abs(digits) > _MOST_PLACES:
        raise ToolError(f"at most {_MOST_PLACES} digits can be rounded to")
    unit = Fraction(10) ** -digits
    steps = Fraction(math.floor(abs(exact(value)) / unit + Fraction(1, 2)))
    return bounded(steps * unit if value >= 0 else -steps * unit)


def _sum(*values: Number) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = add(total, value)
    return total


def _mean(*values: Number) -> Number:
    return divide(_sum(*values), Fraction(len(values)))


def _least(*values: Number) -> Number:
    return min(values, key=exact)


def _largest(*values: Number) -> Number:
    return max(values, key=exact)


def _gcd(*values: Number) -> Number:
    return Fraction(math.gcd(*(_whole(value, "a number that gcd takes") for value in values)))


def _lcm(*values: Number) -> Number:
    found = Fraction(1)
    for value in values:
        found = exact(bounded(Fraction(math.lcm(found.numerator, _whole(value, "a number that lcm takes")))))
    return found


def _whole(value: Number, what: str) -> int:
    number = exact(value)
    if number.denominator != 1:
        raise ToolError(f"{what} must be whole")
    return number.numerator


def _cube_root(value: Number) -> Number:
    size = abs(inexact(value))
    found = size ** (Decimal(1) / 3) if size else size
    near = Fraction(round(found))
    if isinstance(value, Fraction) and near**3 == abs(value):
        return near if value > 0 else -near
    return found.copy_sign(inexact(value))


def _exponential(value: Number) -> Number:
    return inexact(value).exp()


def _ln(value: Number) -> Number:
    return _positive(value).ln()


def _log(value: Number, base: Number | None = None) -> Number:
    return _ln(value) if base is None else divide(_ln(value), _ln(base))


def _log10(value: Number) -> Number:
    return _positive(value).log10()


def _log2(value: Number) -> Number:
    return _log(value, Fraction(2))


def _positive(value: Number) -> Decimal:
    if value <= 0:
        raise ToolError("only numbers above 0 have a logarithm")
    return inexact(value)


def _sine(value: Number) -> Number:
    return sine(inexact(value))


def _cosine(value: Number) -> Number:
    return cosine(inexact(value))


def _tangent(value: Number) -> Number:
    across = _cosine(value)
    if not across:
        raise ToolError("there is no tangent of a right angle")
    return divide(_sine(value), across)


def _arcsine(value: Number) -> Number:
    height = inexact(value)
    if abs(height) > 1:
        raise ToolError("asin and acos are for numbers from -1 to 1")
    if abs(height) == 1:
        return (PI / 2).copy_sign(height)
    return arctangent(height / (1 - height * height).sqrt())


def _arccosine(value: Number) -> Number:
    return PI / 2 - inexact(_arcsine(value))


def _arctangent(value: Number) -> Number:
    return arctangent(inexact(value))


def _degrees(value: Number) -> Number:
    return inexact(value) * 180 / PI


def _radians(value: Number) -> Number:
    return inexact(value) * PI / 180


CONSTANTS: dict[str, Number] = {
    "pi": PI,
    "e": Decimal("2.71828182845904523536028747135266249775724709369995957496697"),
    "tau": Decimal("6.28318530717958647692528676655900576839433879875021164194989"),
}

FUNCTIONS: dict[str, Function] = {
    "sqrt": Function(root),
    "cbrt": Function(_cube_root),
    "abs": Function(_absolute),
    "round": Function(_rounded, 1, 2),
    "floor": Function(floor),
    "ceil": Function(_ceil),
    "trunc": Function(_truncated),
    "min": Function(_least, 1, _MANY),
    "max": Function(_largest, 1, _MANY),
    "sum": Function(_sum, 1, _MANY),
    "mean": Function(_mean, 1, _MANY),
    "gcd": Function(_gcd, 1, _MANY),
    "lcm": Function(_lcm, 1, _MANY),
    "factorial": Function(factorial),
    "exp": Function(_exponential),
    "ln": Function(_ln),
    "log": Function(_log, 1, 2),
    "log10": Function(_log10),
    "log2": Function(_log2),
    "sin": Function(_sine),
    "cos": Function(_cosine),
    "tan": Function(_tangent),
    "asin": Function(_arcsine),
    "acos": Function(_arccosine),
    "atan": Function(_arctangent),
    "degrees": Function(_degrees),
    "radians": Function(_radians),
}
