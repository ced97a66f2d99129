"""An expression → its value, by precedence climbing; nothing of it is ever run as code.

From loose to tight: `+ -`, then `* / // %`, then a sign before, then `**` (from the right), then `!` and percent
behind. Its length and depth are bounded here, the size of its numbers in `arithmetic`.
"""

from collections.abc import Callable
from decimal import DecimalException, Overflow, localcontext
from fractions import Fraction

from midspan.errors import ToolError
from midspan.toolsets.calculator import arithmetic
from midspan.toolsets.calculator.arithmetic import CONTEXT, MOST_DIGITS, TOO_LARGE, Number
from midspan.toolsets.calculator.functions import CONSTANTS, FUNCTIONS
from midspan.toolsets.calculator.tokens import Token, tokens

LONGEST = 1_000
_DEEPEST = 50

_BINARY: dict[str, tuple[int, Callable[[Number, Number], Number]]] = {
    "+": (1, arithmetic.add),
    "-": (1, arithmetic.subtract),
    "*": (2, arithmetic.multiply),
    "/": (2, arithmetic.divide),
    "//": (2, arithmetic.floor_divide),
    "%": (2, arithmetic.remainder),
    "of": (2, arithmetic.multiply),
}
_SIGN = 3
"""How tightly a sign before its operand binds: -2**2 is -4, -2*3 is (-2)*3."""


def evaluate(expression: str) -> Number:
    """The value; a ToolError that says what is wrong, and where, if there is none."""
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has {len(expression):,} characters; at most {LONGEST:,} are read")
    with localcontext(CONTEXT):
        return _Reader(list(tokens(expression))).whole()


class _Reader:
    def __init__(self, read: list[Token]) -> None:
        self._tokens = read
        self._place = 0
        self._depth = 0

    def whole(self) -> Number:
        value = self._expression(0)
        if self._next.kind != "end":
            raise self._unexpected("an operator")
        return value

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += 1
        return token

    def _took(self, text: str) -> bool:
        if self._next.text != text:
            return False
        self._place += 1
        return True

    def _expression(self, tightness: int) -> Number:
        """Operands joined by operators that bind more tightly than this."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ToolError(f"nested more than {_DEEPEST} deep, at position {self._next.position}")
        left = self._signed()
        while (found := _BINARY.get(self._next.text)) is not None and found[0] > tightness:
            operator = self._take()
            right = self._expression(found[0])
            left = _applied(operator, found[1], left, right)
        self._depth -= 1
        return left

    def _signed(self) -> Number:
        if self._next.text not in ("+", "-"):
            return self._power()
        sign = self._take()
        operand = self._expression(_SIGN)
        return operand if sign.text == "+" else _applied(sign, arithmetic.negate, operand)

    def _power(self) -> Number:
        base = self._with_marks()
        if self._next.text != "**":
            return base
        operator = self._take()
        return _applied(operator, arithmetic.power, base, self._expression(_SIGN))

    def _with_marks(self) -> Number:
        value = self._operand()
        while True:
            if self._next.text == "!":
                value = _applied(self._take(), arithmetic.factorial, value)
            elif self._next.text == "%" and not self._operand_follows():
                value = _applied(self._take(), arithmetic.divide, value, Fraction(100))
            else:
                return value

    def _operand_follows(self) -> bool:
        """Whether the next sign stands between operands, as that of a remainder does and that of percent does not."""
        after = self._tokens[self._place + 1]
        if after.text == "-":
            raise ToolError(
                f"'% -' may be a remainder or a percentage, at position {self._next.position}; "
                "write 5 % (-3) for the one and (5%) - 3 for the other"
            )
        return after.kind == "number" or after.text == "(" or (after.kind == "name" and after.text != "of")

    def _operand(self) -> Number:
        token = self._take()
        if token.kind == "number":
            return _applied(token, lambda: _number(token.text))
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            value = self._expression(0)
            self._close(token)
            return value
        self._place -= 1
        raise self._unexpected("a number, a function or '('")

    def _named(self, token: Token) -> Number:
        name = token.text.lower()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            raise ToolError(
                f"{token.text!r} is not known, at position {token.position}; "
                f"the functions are {', '.join(FUNCTIONS)}; the constants are {', '.join(CONSTANTS)}"
            )
        opening = self._next
        if not self._took("("):
            raise ToolError(f"{name} needs its arguments in parentheses, at position {opening.position}")
        given = self._arguments(opening)
        function = FUNCTIONS[name]
        if not function.least <= len(given) <= function.most:
            raise ToolError(f"{name} takes {function.takes}, got {len(given)}, at position {token.position}")
        return _applied(token, function.call, *given)

    def _arguments(self, opening: Token) -> list[Number]:
        if self._took(")"):
            return []
        given = [self._expression(0)]
        while self._took(","):
            given.append(self._expression(0))
        self._close(opening)
        return given

    def _close(self, opening: Token) -> None:
        if not self._took(")"):
            if self._next.kind == "end":
                raise ToolError(f"the '(' at position {opening.position} is never closed")
            raise self._unexpected("an operator or ')'")

    def _unexpected(self, expected: str) -> ToolError:
        token = self._next
        if token.kind == "end":
            return ToolError(f"the expression ends where {expected} should follow, at position {token.position}")
        hint = "; write numbers without thousands separators" if token.text == "," else ""
        return ToolError(f"expected {expected}, found {token.text!r} at position {token.position}{hint}")


def _number(text: str) -> Number:
    digits, _, exponent = text.replace("_", "").lower().partition("e")
    if len(exponent) > len(str(MOST_DIGITS)) + 1 or abs(int(exponent or 0)) > MOST_DIGITS:
        raise ToolError(f"{text[:40]} {TOO_LARGE if '-' not in exponent else 'is too near to 0'}")
    return arithmetic.bounded(Fraction(digits) * Fraction(10) ** int(exponent or 0))


def _applied(token: Token, function: Callable[..., Number], *operands: Number) -> Number:
    """The value, or the problem with the place where it arose."""
    try:
        return function(*operands)
    except ToolError as error:
        problem = str(error)
    except Overflow:
        problem = f"the result {TOO_LARGE}"
    except DecimalException:
        problem = "there is no such real number"
    raise ToolError(f"{problem}, at position {token.position}")
