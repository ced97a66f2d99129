"""Any callable → its name, its words, its parameters and what it returns, with hints that are types and not text."""

import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from midspan._schema.signatures.records import NO_DEFAULT, own_docstring
from midspan.errors import SchemaError

UNKNOWN: Any = inspect.Parameter.empty
"""The hint of what has none."""


class Parameter(Struct, frozen=True):
    """One parameter as the callable declares it."""

    name: str
    kind: Any
    hint: Any
    default: Any = NO_DEFAULT


class Declaration(Struct, frozen=True):
    """What the source of a callable says about it."""

    name: str | None
    """None if it has no name of its own, as a lambda."""
    docstring: str
    parameters: tuple[Parameter, ...]
    bound: frozenset[str]
    """Parameters that a partial has filled in already, so that nobody else shall."""
    returns: Any
    is_async: bool


def declaration(function: Callable[..., Any]) -> Declaration:
    """What this callable declares; a SchemaError if Python cannot tell or it gives values one by one."""
    bound = frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset[str]()
    called = _called(function)
    if not callable(function):
        raise SchemaError(f"{function!r} cannot be called, so it is no tool")
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise SchemaError(f"{_label(function)} yields its values; return a list instead")
    signature = _signature(function)
    if next(iter(signature.parameters), None) == "self":
        raise SchemaError(f"{_label(function)} is a method without its object; give the method of an object")
    resolve = _Resolver(called, _label(function))
    return Declaration(
        name=_own_name(function),
        docstring=_docstring(function, called),
        parameters=tuple(
            Parameter(each.name, each.kind, resolve(each.name, each.annotation), each.default)
            for each in signature.parameters.values()
            if each.name not in bound
        ),
        bound=bound,
        returns=_returned(function, resolve("return", signature.return_annotation)),
        is_async=inspect.iscoroutinefunction(called),
    )


def _called(function: Any) -> Any:
    """What runs in the end: a plain function, a class that is made, or a wrapper that tells what it wraps."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        return _called(function.__func__)
    if isinstance(function, type | types.FunctionType | types.BuiltinFunctionType) or hasattr(function, "__wrapped__"):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - the method is wanted, not whether there is one


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as error:
        raise SchemaError(
            f"Python cannot tell the parameters of {_label(function)}; write a function with hints that calls it"
        ) from error


def _own_name(function: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return None if name == "<lambda>" else str(name)


def _label(function: Any) -> str:
    """How an error names the callable."""
    return _own_name(function) or f"a lambda ({function!r})"


def _docstring(function: Any, called: Any) -> str:
    if isinstance(called, type):
        return own_docstring(called)
    written = inspect.getdoc(called) or ""
    if written == type.__call__.__doc__:
        # What Python says of every `__call__` that has nothing to say; its class may have.
        return own_docstring(type(function))
    return written


def _returned(function: Any, hint: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type) and issubclass(kind, abc.Awaitable):
        return (UNKNOWN, *typing.get_args(hint))[-1]
    return UNKNOWN if hint in (typing.NoReturn, typing.Never) else hint


class _Resolver:
    """Turns annotations that are text into types, in the names that the function itself sees."""

    def __init__(self, called: Any, label: str) -> None:
        is_class = isinstance(called, type)
        function = inspect.unwrap(inspect.getattr_static(called, "__init__") if is_class else called)
        self._globals = getattr(function, "__globals__", {})
        self._locals = _closure(function)
        self._label = label

    def __call__(self, name: str, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty or isinstance(annotation, type):
            return UNKNOWN if annotation is inspect.Parameter.empty else annotation
        carrier = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints = typing.get_type_hints(carrier, self._globals, self._locals, include_extras=True)
        except (NameError, TypeError, SyntaxError, AttributeError) as error:
            raise SchemaError(
                f"{self._label}: the hint {annotation!r} of {_place(name)} cannot be resolved: {error}; "
                "what it names must be importable in the function's module at run time"
            ) from error
        return hints[name]


def _place(name: str) -> str:
    return "the return value" if name == "return" else f"parameter {name!r}"


def _closure(function: Any) -> dict[str, Any]:
    if not isinstance(function, types.FunctionType) or function.__closure__ is None:
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a name that is not assigned yet
            continue
    return found
