"""What a model gave → what a tool takes: defaults, then coercion, then validation."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.checking.filling import Filling, filling_of
from midspan._schema.checking.mending import Mending
from midspan._schema.checking.validators import Compiled
from midspan._schema.checking.weight import measured
from midspan._schema.checking.wording import Problem, located, worded

__all__ = ["Problem", "SchemaValidator", "ValidatedArguments", "problems"]

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
    compiled = Compiled(schema, label="JSON", formats=formats, remotes=remotes, draft=draft)
    return list(_problems(value, compiled))


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SchemaValidator:
    """A schema compiled once, for as many calls as there are; `label` says what it is the schema of."""

    __slots__ = ("_compiled", "_filling", "accepts", "fast_path")

    def __init__(
        self,
        schema: dict[str, Any],
        *,
        label: str = "parameters",
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
    ) -> None:
        self._compiled = Compiled(schema, label=label, formats=formats, remotes=remotes)
        self._filling = filling_of(self._compiled)
        self.fast_path = _shortcut(self._compiled, self._filling)
        """The arguments as the tool gets them, if defaults are all that they lack; else None, and `prepare` is asked.

        This is most calls, at little more than the price of validation.
        """
        deep = self._compiled.compares_deeply
        self.accepts: Callable[[Any], bool] = self._is_right if deep else self._compiled.validator.is_valid
        """Whether a value of plain JSON is right as it is, at the price of validation alone."""

    def validate(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Defaults filled in, values coerced where they do not fit, and the rest told; the given is not changed."""
        ready = self.fast_path(arguments)
        return self._prepared(arguments) if ready is None else ValidatedArguments(ready)

    def _prepared(self, arguments: dict[str, Any]) -> ValidatedArguments:
        deepest = self._compiled.weight.deepest_value
        if measured(arguments, deepest)[1] > deepest:
            return ValidatedArguments(arguments, problems=_problems(arguments, self._compiled))
        # A default can break what is valid without it (`oneOf`, `maxProperties`): then the given stays as it is.
        ways = (True, False) if self._filling is not None else (False,)
        filled = [self._filled(arguments, defaults=defaults) for defaults in ways]
        tried = []
        for attempt in (*filled, *map(self._mended, filled)):
            tried.append(msgspec.structs.replace(attempt, problems=_problems(attempt.arguments, self._compiled)))
            if not tried[-1].problems:
                return tried[-1]
        return min(tried[len(filled) :], key=lambda one: len(one.problems))

    def _filled(self, arguments: dict[str, Any], *, defaults: bool) -> ValidatedArguments:
        if self._filling is None:
            return ValidatedArguments(arguments)
        changes: list[str] = []
        filled = self._filling.applied(arguments, (), changes, defaults=defaults)
        return ValidatedArguments(filled, tuple(changes))

    def _mended(self, given: ValidatedArguments) -> ValidatedArguments:
        mending = Mending(self._compiled)
        try:
            mended = mending.mended(given.arguments, self._compiled.schema)
        except ValueError:
            return given
        if not mending.changes:
            return given
        changes = (*given.changes, *mending.changes)
        # What was text a moment ago may be an object now, and lack its defaults.
        filled = self._filled(mended, defaults=True)
        if filled.arguments is mended or _problems(filled.arguments, self._compiled):
            filled = self._filled(mended, defaults=False)
        return ValidatedArguments(filled.arguments, (*changes, *filled.changes))

    def _is_right(self, value: Any) -> bool:
        return not self.problems(value)

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """What is wrong with a value as it is: nothing filled in, nothing coerced."""
        return _problems(value, self._compiled)


def _shortcut(compiled: Compiled, filling: Filling | None) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """The way of a call that is valid as it comes; a closure, because looking up attributes is half of the price."""
    is_valid = compiled.validator.is_valid
    defaults = filling.defaults if filling else {}
    # A default that is a container is one of its own for each call.
    containers = {name: default for name, default in defaults.items() if isinstance(default, dict | list)}
    copied = msgspec.to_builtins
    inside = filling.inside.items() if filling else ()
    flat = tuple(name for name, one in inside if one.is_flat)
    deep = tuple((name, one) for name, one in inside if not one.is_flat)

    has_containers = bool(containers or deep)

    def ready(arguments: dict[str, Any]) -> dict[str, Any] | None:
        try:
            filled = defaults | arguments if defaults else arguments
            # Where a float shall be an integer, or a default is missing deep inside, `prepare` mends and tells it.
            for name in flat:
                if type(filled.get(name)) is float:
                    return None
            if has_containers:
                for name in containers:
                    if name not in arguments:
                        filled[name] = copied(containers[name])
                for name, within in deep:
                    value = filled.get(name)
                    if within.applied(value, (), []) is not value:
                        return None
            return filled if is_valid(filled) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None  # no object, or something in it that JSON cannot say: `prepare` tells what

    def never(_: dict[str, Any]) -> None:
        return None

    # A recursive schema must look at the depth of a value first.
    at_top = filling and (filling.others or filling.patterns or filling.branches or filling.items or filling.prefix)
    return never if compiled.compares_deeply or at_top else ready


def _problems(value: Any, compiled: Compiled) -> tuple[Problem, ...]:
    weight = compiled.weight
    size, depth = measured(value, weight.deepest_value)
    if depth > weight.deepest_value:
        return (Problem("", f"is nested more than {weight.deepest_value} levels deep, or too large"),)
    try:
        if compiled.validator.is_valid(value):
            return ()
        if weight.cost(size, depth) <= _MOST_WORK:
            return tuple(worded(compiled.validator.iter_errors(value), compiled.document, value))
        return located(value, compiled)
    except ValueError as error:
        return (Problem("", f"holds something that JSON cannot say: {error}"[:300]),)
