"""Numbers and what is done with them: exact fractions as long as they stay small, 40 digits where they cannot."""

import math
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction

from midspan.errors import ToolError

Number = Fraction | Decimal
"""A Fraction is exact; a Decimal is right to about 40 digits, whatever becomes of it."""

MOST_DIGITS = 2_000
TOO_LARGE = f"has more than {MOST_DIGITS:,} digits, which is too large"
CONTEXT = Context(prec=40, Emax=MOST_DIGITS - 1, Emin=-MOST_DIGITS, traps=[InvalidOperation, DivisionByZero, Overflow])

_MOST_BITS = int(MOST_DIGITS * math.log2(10))
_CERTAIN = Context(prec=35)
_NOISE = Decimal("1e-35")
_LARGEST_FACTORIAL = 807
"""The factorial of the next one has more than 2,000 digits."""


def bounded(value: Fraction) -> Number:
    """The value, no longer exact if its digits are too many."""
    return value if _bits(value) <= _MOST_BITS else inexact(value)


def inexact(value: Number) -> Decimal:
    """The value in 40 digits."""
    if isinstance(value, Decimal):
        return value
    return Decimal(value.numerator) / Decimal(value.denominator)


def exact(value: Number) -> Fraction:
    """The value as a fraction; of a rounded one without its last digits, so that log(8, 2) is 3 and no less."""
    return value if isinstance(value, Fraction) else Fraction(_CERTAIN.plus(value))


def add(left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left + right)
    one, other = inexact(left), inexact(right)
    total = one + other
    # What is left where nearly all digits cancel out are those that rounding made: sqrt(2) * sqrt(2) - 2 is 0.
    return total if abs(total) > max(abs(one), abs(other)) * _NOISE else Decimal(0)


def subtract(left: Number, right: Number) -> Number:
    return add(left, negate(right))


def negate(value: Number) -> Number:
    return -value


def multiply(left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left * right)
    return inexact(left) * inexact(right)


def divide(left: Number, right: Number) -> Number:
    if not right:
        raise ToolError("division by zero")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left / right)
    return inexact(left) / inexact(right)


def floor_divide(left: Number, right: Number) -> Number:
    return floor(divide(left, right))


def remainder(left: Number, right: Number) -> Number:
    """What is left of a division rounded down, so that it has the sign of the divisor."""
    return subtract(left, multiply(right, floor_divide(left, right)))


def floor(value: Number) -> Number:
    return Fraction(math.floor(exact(value)))


def power(base: Number, exponent: Number) -> Number:
    if not exponent:
        return Fraction(1)
    if not base and exponent < 0:
        raise ToolError("division by zero")
    if exponent == Fraction(1, 2):
        return root(base)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        # Of b bits, the n-th power has more than n * (b - 1).
        if abs(exponent) * (_bits(base) - 1) <= _MOST_BITS:
            return bounded(base**exponent.numerator)
    elif base < 0 and exact(exponent).denominator != 1:
        raise ToolError("a negative number has no real power with a fraction; for a cube root use cbrt")
    return inexact(base) ** inexact(exponent)


def root(value: Number) -> Number:
    """The square root."""
    if value < 0:
        raise ToolError("a negative number has no real square root")
    if isinstance(value, Fraction):
        found = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if found * found == value:
            return found
    return inexact(value).sqrt()


def factorial(value: Number) -> Number:
    number = exact(value)
    if number.denominator != 1 or number < 0:
        raise ToolError("only whole numbers from 0 have a factorial")
    if number > _LARGEST_FACTORIAL:
        raise ToolError(f"the factorial {TOO_LARGE}; {_LARGEST_FACTORIAL} is the largest that has one here")
    return Fraction(math.factorial(number.numerator))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())
