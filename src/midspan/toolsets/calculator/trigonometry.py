"""Sine, cosine and arctangent of decimals, right to 30 places, which the decimal module lacks."""

from decimal import Decimal, localcontext

from midspan.errors import ToolError

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")

_PRECISION = 60
_LARGEST_ANGLE = Decimal(10) ** 15
_PLACES = Decimal("1e-30")
"""Sines are rounded to this, so that the sine of pi is 0 and not what is left of its digits."""
_NEGLIGIBLE = Decimal("1e-50")
_HALVINGS = 4


def sine(angle: Decimal) -> Decimal:
    return _circular(angle, quarter_turns=0)


def cosine(angle: Decimal) -> Decimal:
    return _circular(angle, quarter_turns=1)


def _circular(angle: Decimal, *, quarter_turns: int) -> Decimal:
    if abs(angle) > _LARGEST_ANGLE:
        raise ToolError(f"angles beyond {_LARGEST_ANGLE:.0e} are too large to say where on the circle they are")
    with localcontext() as context:
        context.prec = _PRECISION
        reduced = (angle + quarter_turns * PI / 2) % (2 * PI)
        term, total, number = reduced, reduced, 1
        while abs(term) > _NEGLIGIBLE:
            term *= -reduced * reduced / ((number + 1) * (number + 2))
            total += term
            number += 2
        # The sine of a small angle is small itself, and has all its digits.
        return total if abs(angle) < 1 and not quarter_turns else total.quantize(_PLACES)


def arctangent(value: Decimal) -> Decimal:
    """The angle between -pi/2 and pi/2 that has this tangent."""
    with localcontext() as context:
        context.prec = _PRECISION
        if abs(value) > 1:
            return (PI / 2).copy_sign(value) - arctangent(1 / value)
        for _ in range(_HALVINGS):
            value = value / (1 + (1 + value * value).sqrt())
        square, term, total, number = value * value, value, value, 1
        while abs(term) > _NEGLIGIBLE:
            term *= -square
            number += 2
            total += term / number
        return total * Decimal(2) ** _HALVINGS
