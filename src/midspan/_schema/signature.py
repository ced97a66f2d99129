"""A Python callable as a tool: its JSON Schema, and the arguments of a call as the callable takes them.

`*numbers: float` is an optional array `numbers`; `**labels: str` accepts any further argument that is a text.
The model does not see parameters annotated with `Context[…]`, which get the caller's own object, or `RunContext`.
"""

import functools
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Optional, TypeVar

from msgspec import Struct

from midspan._schema.conversion import Convert, TypeSchema, convert_arguments
from midspan._schema.docstrings import Docstring, parse_docstring
from midspan._schema.hints import SchemaBuilder
from midspan._schema.records import (
    NO_DEFAULT,
    Field,
    fields_of,
    own_docstring,
    resolve_hints,
    special_forms,
    unwrap_default,
)
from midspan._schema.tree import Schema
from midspan._types.context import NO_CONTEXT, RunContext
from midspan.errors import SchemaError

T = TypeVar("T")
Call = tuple[tuple[Any, ...], dict[str, Any]]

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_VARIADIC = inspect.Parameter.VAR_POSITIONAL
_KEYWORDS = inspect.Parameter.VAR_KEYWORD
_OPTIONS: dict[str, Any] = {}
if sys.version_info >= (3, 14):  # annotations are evaluated lazily, and one that cannot be must not hide the others
    import annotationlib

    _OPTIONS["annotation_format"] = annotationlib.Format.FORWARDREF
_PLAIN_DEFAULTS = (str, int, float, bool, list, dict, tuple, set)


class Injected:
    """Marks the hint of a parameter that the model does not see."""


Context = Annotated[T, Injected]
"""`def f(city: str, context: Context[Deps])`: for a type checker, and in the function, it is simply a `Deps`."""


class Binding(Struct, frozen=True, eq=False):
    """How one function takes its arguments.

    Called with arguments, it returns the `(args, kwargs)` to call the function with, or raises an ArgumentError. It
    converts values, and assumes that they have been validated against the schema.
    """

    convert: Convert
    needs_no_conversion: bool
    """Whether arguments that are valid by the schema can be passed to the function as they are."""
    positional: tuple[tuple[str, Any], ...] = ()
    """Parameters without a keyword, and all others before `*variadic`, with their defaults."""
    variadic: str | None = None
    factories: dict[str, Callable[[], Any]] = {}
    """For parameters whose default is pydantic's `Field(…)`: what makes the value if it is missing."""
    contexts: dict[str, Callable[[RunContext[Any]], Any]] = {}
    """For parameters that the model does not see: what they get from the run."""
    needs_context: bool = False
    """Whether the function has a context without a default, of a type that excludes None."""

    def __call__(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        values = convert_arguments(arguments, self.convert)
        for name, factory in self.factories.items():
            if name not in values:
                values[name] = factory()
        for name, take in self.contexts.items():
            values[name] = take(context)
        rest = values.pop(self.variadic, ()) if self.variadic is not None else ()
        return (*(values.pop(name, default) for name, default in self.positional), *rest), values


class Signature(Struct, frozen=True, eq=False):
    """The name, description and schemas of a callable, and the binding of its arguments."""

    name: str
    description: str
    parameters: Schema
    response: Schema | None
    """None if the return hint says nothing, or nothing that JSON Schema can express."""
    bind: Binding


def signature_of(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Signature:
    """Return the signature of any callable; a SchemaError if JSON Schema cannot express a parameter."""
    if not callable(function):
        raise SchemaError(f"{function!r:.200} is not a tool; expected a function, a Tool or a ToolSource")
    bare, bound = (function.func, function.keywords) if isinstance(function, functools.partial) else (function, {})
    label = str(getattr(bare, "__name__", type(bare).__name__))
    name = name or label
    if name == "<lambda>":
        raise SchemaError("a lambda has no name that a model could call it by; pass name=…")
    signature, resolve = _signature(function, label), _resolver(bare, label)
    parameters = [
        parameter.replace(annotation=resolve(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
        if parameter.name not in bound
    ]
    docstring = parse_docstring(_docstring(bare))
    contexts = {parameter.name: take for parameter in parameters if (take := _context(parameter)) is not None}
    visible = [parameter for parameter in parameters if parameter.name not in contexts]
    builder = SchemaBuilder("in", advice="; a parameter that the model must not see can be a Context[…]")
    fields = [field for parameter in visible for field in _fields(parameter, docstring)]
    extra: TypeSchema | None = None
    for keywords in (item for item in visible if item.kind is _KEYWORDS and _unpacked(item.annotation) is None):
        extra = builder.build_at(f"parameter {keywords.name!r} of {name}", _hint(keywords))
        extra = extra.describe(docstring.parameters.get(keywords.name, ""))
    built = builder.build_object(fields, name=name, label="parameter", extra=extra)
    schema = built.schema
    if extra is not None and (reserved := sorted({*bound, *contexts})):  # names that are filled in otherwise
        schema = {**schema, "propertyNames": {"not": {"enum": reserved}}}
    return Signature(
        name=name,
        description=description or docstring.description or name.replace("_", " ").strip().capitalize(),
        parameters=builder.resolve(schema),
        response=_response(bare, signature.return_annotation, resolve),
        bind=_binding(parameters, fields, built, contexts),
    )


def _binding(
    parameters: list[inspect.Parameter],
    fields: list[Field],
    built: TypeSchema,
    contexts: dict[str, Callable[[RunContext[Any]], Any]],
) -> Binding:
    variadic = next((parameter.name for parameter in parameters if parameter.kind is _VARIADIC), None)
    leading = (_POSITIONAL,) if variadic is None else (_POSITIONAL, _EITHER)
    positional = tuple((parameter.name, parameter.default) for parameter in parameters if parameter.kind in leading)
    factories = {field.key: field.factory for field in fields if field.factory is not None}
    return Binding(
        convert=built.convert,
        needs_no_conversion=built.needs_no_conversion and not (positional or factories or variadic or contexts),
        positional=positional,
        variadic=variadic,
        factories=factories,
        contexts=contexts,
        needs_context=any(map(_needs_context, parameters)),
    )


def _called(function: Any) -> Any:
    """Return the object that is called in the end: a function, a class, or a wrapper with `__wrapped__`."""
    if isinstance(function, types.MethodType):
        return _called(function.__func__)
    if isinstance(function, type | types.FunctionType | types.BuiltinFunctionType) or hasattr(function, "__wrapped__"):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - the method is wanted, not whether there is one


def _signature(function: Callable[..., Any], label: str) -> inspect.Signature:
    try:
        signature = inspect.signature(function, **_OPTIONS)
    except Exception as error:  # `__signature__` may be anything
        raise SchemaError(
            f"Python does not know the parameters of {label}; write a function with type hints that calls it"
        ) from error
    if next(iter(signature.parameters), None) == "self":
        raise SchemaError(f"{label} is an unbound method; pass the method of an instance")
    return signature


def _docstring(function: Any) -> str:
    called = _called(function)
    if isinstance(called, type):
        return own_docstring(called)
    text = inspect.getdoc(called) or ""
    if inspect.isroutine(function) or called is function or text not in ("", type.__call__.__doc__):
        return text
    # A callable object whose method has no docstring but the one of every `__call__`.
    return inspect.getdoc(function) or inspect.getdoc(type(function)) or ""


def _resolver(function: Any, label: str) -> Callable[[str, Any], Any]:
    """Return a function that resolves string annotations to types, with the names of the function's module."""
    called = _called(function)
    function = inspect.unwrap(inspect.getattr_static(called, "__init__") if isinstance(called, type) else called)
    names, parameters = getattr(function, "__globals__", {}), getattr(function, "__type_params__", ())

    def resolve(name: str, annotation: Any) -> Any:
        # One by one, because a return hint that cannot be resolved does no harm.
        owner = types.SimpleNamespace(__annotations__={name: annotation}, __type_params__=parameters)
        subject = "the return value" if name == "return" else f"parameter {name!r}"
        return resolve_hints(owner, f"{subject} of {label}", names)[name]

    return resolve


def _context(parameter: inspect.Parameter) -> Callable[[RunContext[Any]], Any] | None:
    """Return a function that takes the value of a parameter from the run; None if the model provides the value."""
    if _is_marked(parameter.annotation, RunContext):
        return lambda context: context
    if not _is_marked(parameter.annotation, Injected):
        return None
    default = None if parameter.default is NO_DEFAULT else parameter.default
    return lambda context: default if context.user is None else context.user


def _is_marked(hint: Any, marker: type) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_marked(member, marker) for member in typing.get_args(hint))
    return hint is marker or origin is marker or marker in getattr(hint, "__metadata__", ())


def _needs_context(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is a context, has no default, and its type excludes None."""
    hint = parameter.annotation
    is_context = _is_marked(hint, Injected) or typing.get_origin(hint) is RunContext
    if not is_context or parameter.default is not NO_DEFAULT or type(None) in typing.get_args(hint):
        return False
    expected = hint.__origin__ if hasattr(hint, "__metadata__") else typing.get_args(hint)[0]
    accepts_anything = expected in (None, Any, object) or isinstance(expected, TypeVar)
    return not accepts_anything and type(None) not in typing.get_args(expected)


def _fields(parameter: inspect.Parameter, docstring: Docstring) -> Iterable[Field]:
    """Return the fields that a parameter adds to the object of all arguments."""
    name, description = parameter.name, docstring.parameters.get(parameter.name, "")
    unpacked = _unpacked(parameter.annotation)
    # `**options: Unpack[Options]` has the fields of a TypedDict as parameters.
    fields = fields_of(unpacked, "in") if parameter.kind is _KEYWORDS else None
    if unpacked is not None and fields is None:
        raise SchemaError(f"parameter {name!r}: only a TypedDict can be unpacked, after **")
    if parameter.kind is _KEYWORDS:
        return fields or ()
    if parameter.kind is _VARIADIC:
        hint: Any = types.GenericAlias(list, (_hint(parameter),))
        return (Field(name, name, hint, required=False, description=description),)
    is_required = parameter.default is NO_DEFAULT
    return (unwrap_default(Field(name, name, _hint(parameter), is_required, parameter.default, description)),)


def _unpacked(hint: Any) -> Any:
    """Return what a hint unpacks: `X` of `Unpack[X]` or `*X`; None if it unpacks nothing."""
    if typing.get_origin(hint) in special_forms("Unpack"):
        return typing.get_args(hint)[0]
    return typing.get_origin(hint) if getattr(hint, "__unpacked__", False) else None


def _hint(parameter: inspect.Parameter) -> Any:
    """Return the hint, or the type of the default. A default of None is allowed even if the hint forgets it."""
    hint, default = parameter.annotation, parameter.default
    if hint is inspect.Parameter.empty:
        return type(default) if type(default) in _PLAIN_DEFAULTS else Any
    if default is not None or hint is None:
        return hint
    if hasattr(hint, "__metadata__"):
        return Annotated[(Optional[hint.__origin__], *hint.__metadata__)]  # noqa: UP045 - not every hint has an |
    return Optional[hint]  # noqa: UP045 - as above


def _response(function: Any, annotation: Any, resolve: Callable[[str, Any], Any]) -> Schema | None:
    """Return the schema of the result; None if the hint says nothing, or nothing that JSON Schema can express."""
    builder = SchemaBuilder("out")
    try:
        hint = function if isinstance(function, type) else resolve("return", annotation)
        origin = typing.get_origin(hint) or hint
        if isinstance(origin, type) and issubclass(origin, abc.Awaitable):
            hint = (Any, *typing.get_args(hint))[-1]
        return builder.resolve(builder.build(hint).schema) or None
    except SchemaError:
        return None  # the model does without a declared result
