"""The tool `calculate`."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.tools.function import Tool, tool
from midspan.toolsets.calculator.display import shown
from midspan.toolsets.calculator.grammar import LONGEST, evaluate

Expression = Annotated[str, Meta(min_length=1, max_length=LONGEST)]


class Calculation(Struct, frozen=True):
    """The value of an expression."""

    result: str
    """In digits; text, because JSON has no numbers of any length."""
    is_exact: bool
    """Whether this is all of it; else it is rounded to 15 digits."""


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
    return Calculation(*shown(evaluate(expression)))


def calculator_tool() -> Tool[..., Any]:
    """The tool `calculate`."""

    # On the event loop: usual expressions take less than the way to a thread and back, the worst some 20 ms.
    async def run(expression: Expression) -> Calculation:
        return calculate(expression)

    run.__doc__ = calculate.__doc__
    # It changes nothing and always gives the same result. Declaring a read is what marks a tool as read-only.
    examples = [{"expression": "0.1 + 0.2"}, {"expression": "1200 * (1 + 3.5%) ** 10"}]
    return tool(name="calculate", reads="arithmetic", idempotent=True, examples=examples)(run)
