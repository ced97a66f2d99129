"""Numbers → digits."""

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction

from midspan.toolsets.calculator.arithmetic import CONTEXT, Number, inexact

_MOST_EXACT_DIGITS = 50
"""A fraction with more digits than this is rounded like one that never ends."""
_ROUNDED = Context(prec=15, rounding=ROUND_HALF_EVEN)
_PLAIN_EXPONENTS = range(-7, 21)
"""Outside of these, a rounded number is written with an exponent."""


def shown(value: Number) -> tuple[str, bool]:
    """The number as text, and whether that is all of it."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator), True
        if (decimal := _terminating(value)) is not None:
            return _written(decimal), True
    with localcontext(CONTEXT):
        return _written(_ROUNDED.plus(inexact(value))), False


def _terminating(value: Fraction) -> Decimal | None:
    """The fraction as a decimal, if that ends soon."""
    rest, places = value.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest //= prime
            count += 1
        places = max(places, count)
    if rest != 1 or places > _MOST_EXACT_DIGITS:
        return None
    digits = value.numerator * 10**places // value.denominator
    return Decimal(f"{digits}e-{places}")


def _written(value: Decimal) -> str:
    if not value:
        return "0"
    plain = value.normalize(Context(prec=4_000))
    if plain.adjusted() in _PLAIN_EXPONENTS:
        return format(plain, "f")
    return format(plain, "e").replace("e+", "e")
