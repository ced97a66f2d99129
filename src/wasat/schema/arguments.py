"""What a model gave → what a tool takes: defaults, then coercion, then validation."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from wasat.schema.coercion import Coercion
from wasat.schema.filling import Filling, filling_of
from wasat.schema.locating import located
from wasat.schema.size import measured
from wasat.schema.validators import Compiled
from wasat.schema.wording import Problem, worded

__all__ = ["Checker", "Prepared", "Problem", "problems"]

_MOST_WORK = 50_000
"""Beyond this the validator's list of errors takes seconds to make, so it is not asked for one."""


def problems(
    value: Any,
    schema: Any,
    *,
    formats: bool = False,
    remotes: Mapping[str, Any] | None = None,
    draft: str | None = None,
) -> list[Problem]:
    """All that is wrong with a value; nothing is filled in, coerced or fetched.

    `remotes` are the documents that references may lead to, by URL. `draft` ("7", "2020-12", …) is for
    schemas that do not name theirs.
    """
    compiled = Compiled(schema, word="JSON", formats=formats, remotes=remotes, draft=draft)
    return list(_problems(value, compiled))


class Prepared(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class Checker:
    """A schema compiled once, for as many calls as there are; `word` says what it is the schema of."""

    __slots__ = ("_compiled", "_filling", "accepts", "ready")

    def __init__(
        self,
        schema: dict[str, Any],
        *,
        word: str = "parameters",
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
    ) -> None:
        self._compiled = Compiled(schema, word=word, formats=formats, remotes=remotes)
        self._filling = filling_of(self._compiled)
        self.ready = _shortcut(self._compiled, self._filling)
        """The arguments as the tool gets them, if defaults are all that they lack; else None, and `prepare` is asked.

        This is most calls, at little more than the price of validation.
        """
        deep = self._compiled.compares_deeply
        self.accepts: Callable[[Any], bool] = self._is_right if deep else self._compiled.validator.is_valid
        """Whether a value of plain JSON is right as it is, at the price of validation alone."""

    def prepare(self, arguments: dict[str, Any]) -> Prepared:
        """Defaults filled in, values coerced where they do not fit, and the rest told; the given is not changed."""
        ready = self.ready(arguments)
        return self._prepared(arguments) if ready is None else Prepared(ready)

    def _prepared(self, arguments: dict[str, Any]) -> Prepared:
        deepest = self._compiled.weight.deepest_value
        if measured(arguments, deepest)[1] > deepest:
            return Prepared(arguments, problems=_problems(arguments, self._compiled))
        changes: list[str] = []
        if self._filling is not None:
            arguments = self._filling.applied(arguments, (), changes)
        found = _problems(arguments, self._compiled)
        if not found:
            return Prepared(arguments, tuple(changes))
        return self._mended(arguments, changes, found)

    def _mended(self, arguments: dict[str, Any], changes: list[str], found: tuple[Problem, ...]) -> Prepared:
        coercion = Coercion(self._compiled)
        try:
            mended = coercion.mended(arguments, self._compiled.schema)
        except ValueError:
            return Prepared(arguments, tuple(changes), found)
        if not coercion.changes:
            return Prepared(arguments, tuple(changes), found)
        if self._filling is not None:
            mended = self._filling.applied(mended, (), changes)
        return Prepared(mended, (*changes, *coercion.changes), _problems(mended, self._compiled))

    def _is_right(self, value: Any) -> bool:
        return not self.problems(value)

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """What is wrong with a value as it is: nothing filled in, nothing coerced."""
        return _problems(value, self._compiled)


def _shortcut(compiled: Compiled, filling: Filling | None) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """The way of a call that is valid as it comes; a closure, because looking up attributes is half of the price."""
    is_valid = compiled.validator.is_valid
    defaults = filling.defaults if filling else {}
    watched = tuple(filling.inside) if filling else ()

    def ready(arguments: dict[str, Any]) -> dict[str, Any] | None:
        try:
            filled = defaults | arguments if defaults else arguments
            for name in watched:
                kind = type(filled.get(name))
                # In these there may be a float to make an integer of, or a default to fill in.
                if kind is float or kind is dict or kind is list:
                    return None
            return filled if is_valid(filled) else None
        except (ValueError, TypeError, AttributeError):
            return None  # no object, or something in it that JSON cannot say: `prepare` tells what

    def never(_: dict[str, Any]) -> None:
        return None

    # A recursive schema must look at the depth of a value first, and a default that is a container be copied.
    is_plain = not (
        compiled.compares_deeply
        or (filling and (filling.others or filling.items or filling.prefix))
        or any(isinstance(default, dict | list) for default in defaults.values())
    )
    return ready if is_plain else never


def _problems(value: Any, compiled: Compiled) -> tuple[Problem, ...]:
    weight = compiled.weight
    size, depth = measured(value, weight.deepest_value)
    if depth > weight.deepest_value:
        return (Problem("", f"is nested more than {weight.deepest_value} levels deep, or too large"),)
    try:
        if compiled.validator.is_valid(value):
            return ()
        if weight.cost(size, depth) <= _MOST_WORK:
            return tuple(worded(list(compiled.validator.iter_errors(value)), compiled.document))
        return located(value, compiled)
    except ValueError as error:
        return (Problem("", f"holds something that JSON cannot say: {error}"[:300]),)
