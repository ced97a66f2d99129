"""What a callable declares: its name, docstring, parameters and return hint, with hints that are resolved."""

import functools
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.signatures.records import NO_DEFAULT, own_docstring, special_forms
from midspan.errors import SchemaError

NO_HINT: Any = inspect.Parameter.empty


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
    dispatch_types: tuple[Any, ...]
    """The types for which `functools.singledispatch` has an implementation."""
    bound: frozenset[str]
    """Parameters that a `functools.partial` has filled in."""
    returns: Any


def read_declaration(function: Callable[..., Any]) -> Declaration:
    """Return what a callable declares; a SchemaError if Python cannot tell."""
    bound = frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset[str]()
    called = _called(function)
    if not callable(function):
        raise SchemaError(f"{function!r} cannot be called, so it cannot be a tool")
    signature = _signature(function)
    if next(iter(signature.parameters), None) == "self":
        raise SchemaError(f"{_label(function)} is a method without its object; pass the method of an object")
    resolve = _Resolver(called, _label(function))
    parameters = [
        Parameter(parameter.name, parameter.kind, resolve(parameter.name, parameter.annotation), parameter.default)
        for parameter in signature.parameters.values()
        if parameter.name not in bound
    ]
    dispatch_types = _dispatch_types(called)
    if dispatch_types and parameters:
        # The argument that decides is always passed by position.
        parameters[0] = replace(parameters[0], kind=inspect.Parameter.POSITIONAL_ONLY)
    return Declaration(
        name=_own_name(function),
        docstring=_docstring(function, called),
        parameters=tuple(parameters),
        dispatch_types=dispatch_types,
        bound=bound,
        returns=_return_hint(function, signature.return_annotation, resolve),
    )


def _unwrap_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _called(function: Any) -> Any:
    """Return what runs in the end: a plain function, a class, or a wrapper that says what it wraps."""
    function = _unwrap_partial(function)
    if isinstance(function, types.MethodType):
        return _called(function.__func__)
    if isinstance(function, type | types.FunctionType | types.BuiltinFunctionType) or hasattr(function, "__wrapped__"):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - the method is wanted, not whether there is one


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 14):  # annotations are evaluated here, and one that cannot be must not hide the others
        import annotationlib

        options["annotation_format"] = annotationlib.Format.FORWARDREF
    try:
        return inspect.signature(function, **options)
    except Exception as error:  # `__signature__` may be anything
        raise SchemaError(
            f"Python does not know the parameters of {_label(function)}; write a function with type hints that calls it"
        ) from error


def _own_name(function: Any) -> str | None:
    function = _unwrap_partial(function)
    name = getattr(function, "__name__", None) or type(function).__name__
    return None if name == "<lambda>" else str(name)


def _label(function: Any) -> str:
    """Return how errors name the callable."""
    return _own_name(function) or f"a lambda ({function!r})"


def _docstring(function: Any, called: Any) -> str:
    if isinstance(called, type):
        return own_docstring(called)
    function = _unwrap_partial(function)
    text = inspect.getdoc(called) or ""
    if callable(getattr(type(function), "__call__", None)) and not inspect.isroutine(function):  # noqa: B004 - as above
        # A callable object: its method may have no docstring but the one of every `__call__`, while it has one itself.
        if text in ("", type.__call__.__doc__):
            text = inspect.cleandoc(vars(function).get("__doc__") or "") if hasattr(function, "__dict__") else ""
        documented = (own_docstring(cls) for cls in type(function).__mro__ if cls is not object)
        return text or next(filter(None, documented), "")
    return text


def _return_hint(function: Any, annotation: Any, resolve: "_Resolver") -> Any:
    """Return the hint of the result; NO_HINT if it says nothing or cannot be resolved."""
    function = _unwrap_partial(function)
    if isinstance(function, type):
        return function
    try:
        hint = resolve("return", annotation)
    except SchemaError:
        return NO_HINT
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, abc.Awaitable):
        return (NO_HINT, *typing.get_args(hint))[-1]
    return NO_HINT if hint in (*special_forms("NoReturn"), *special_forms("Never")) else hint


def _dispatch_types(called: Any) -> tuple[Any, ...]:
    registry = getattr(called, "registry", None)
    is_dispatching = isinstance(registry, types.MappingProxyType) and hasattr(called, "dispatch")
    return tuple(registry or ()) if is_dispatching else ()


class _Resolver:
    """Turns annotations that are text into types, with the names that the function itself sees."""

    def __init__(self, called: Any, label: str) -> None:
        is_class = isinstance(called, type)
        function = inspect.unwrap(inspect.getattr_static(called, "__init__") if is_class else called)
        self._globals = getattr(function, "__globals__", {})
        self._locals = _closure(function)
        self._label = label

    def __call__(self, name: str, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty or isinstance(annotation, type):
            return NO_HINT if annotation is inspect.Parameter.empty else annotation
        carrier = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints = typing.get_type_hints(carrier, self._globals, self._locals, include_extras=True)
        except Exception as error:  # evaluating an annotation is foreign code
            place = "the return value" if name == "return" else f"parameter {name!r}"
            raise SchemaError(
                f"{self._label}: cannot resolve the hint {annotation!r} of {place}: {error}; "
                "the names in it must exist in the module of the function at run time"
            ) from error
        return hints[name]


def _closure(function: Any) -> dict[str, Any]:
    """Return the names that a function sees beside its globals: type parameters, and those of functions around it."""
    names = {parameter.__name__: parameter for parameter in getattr(function, "__type_params__", ())}
    if not isinstance(function, types.FunctionType) or function.__closure__ is None:
        return names
    try:
        return names | dict(inspect.getclosurevars(function).nonlocals)
    except ValueError:  # a name that is not assigned yet
        return names
