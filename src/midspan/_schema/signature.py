"""A Python callable as a tool: its JSON Schema, and the arguments of a call as the callable takes them.

`*numbers: float` is an optional array `numbers`; `**labels: str` accepts any further argument that is a text.
The model does not see parameters annotated with `Context[…]`, which get the caller's own object, or `RunContext`.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Optional, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.signatures.callables import NO_HINT, Declaration, Parameter, read_declaration
from midspan._schema.signatures.conversion import ConversionError, ObjectSchema, Schema, TypeSchema
from midspan._schema.signatures.docstrings import Docstring, parse_docstring
from midspan._schema.signatures.hints import SchemaBuilder, hint_name
from midspan._schema.signatures.records import NO_DEFAULT, Field, record_of, special_forms, unwrap_default
from midspan._types.context import NO_CONTEXT, RunContext
from midspan.errors import ArgumentError, SchemaError

T = TypeVar("T")
Call = tuple[tuple[Any, ...], dict[str, Any]]

_VARIADIC = inspect.Parameter.VAR_POSITIONAL
_KEYWORDS = inspect.Parameter.VAR_KEYWORD


class Injected:
    """Marks the hint of a parameter that the model never sees."""


Context = Annotated[T, Injected]
"""`def f(city: str, context: Context[Deps])`: for a type checker, and in the function, it is simply a `Deps`."""


class Binding(Struct, frozen=True, eq=False):
    """How one function takes its arguments."""

    parameters: ObjectSchema
    takes_json: bool
    """Whether arguments that are valid by the schema can be passed to the function as they are."""
    positional: tuple[tuple[str, Any], ...] = ()
    """Parameters without a keyword, with their defaults."""
    before_variadic: tuple[tuple[str, Any], ...] = ()
    """Parameters that must be positional if `*variadic` gets anything, with their defaults."""
    variadic: str | None = None
    factories: dict[str, Callable[[], Any]] = {}
    """For parameters whose default is `Field(…)` or similar: what makes the value if it is missing."""
    context: str | None = None
    context_default: Any = None
    """The context of a function if the caller passes none."""
    run_context: str | None = None

    def __call__(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        try:
            values = self.parameters.convert(arguments)
        except ConversionError as error:
            raise error.argument_error() from error
        except RecursionError as error:
            raise ArgumentError("", "nested too deeply") from error
        for name, factory in self.factories.items():
            if name not in values:
                values[name] = factory()
        if self.context is not None:
            values[self.context] = self.context_default if context.user is None else context.user
        if self.run_context is not None:
            values[self.run_context] = context
        if not self.positional and self.variadic is None:
            return (), values  # nearly always
        rest = values.pop(self.variadic, ()) if self.variadic is not None else ()
        leading = (*self.positional, *(self.before_variadic if rest else ()))
        return (*(values.pop(name, default) for name, default in leading), *rest), values


class Signature(Struct, frozen=True, eq=False):
    """What a model is told about a callable, and how JSON goes in and out of it."""

    name: str
    description: str
    parameters: Schema
    response: Schema | None
    """None if the return hint says nothing, or nothing that JSON Schema can express."""
    binding: Binding

    def bind(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        """Return the `(args, kwargs)` to call the function with; an ArgumentError if a value is not of its type.

        It converts values, and checks them only as far as that needs; the schema is validated elsewhere, before.
        """
        return self.binding(arguments, context)


def signature_of(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Signature:
    """Return the signature of any callable; a SchemaError if JSON Schema cannot express a parameter."""
    declared = read_declaration(function)
    name = name or declared.name
    if not name:
        raise SchemaError("a lambda has no name that a model could call it by; pass name=…")
    docstring = parse_docstring(declared.docstring)
    context, run_context = (_injected(declared.parameters, marker, name) for marker in (Injected, RunContext))
    visible = [parameter for parameter in declared.parameters if parameter.name not in (context, run_context)]
    builder = SchemaBuilder("in")
    fields = [field for parameter in visible for field in _fields(parameter, declared, docstring)]
    parameters = builder.build_object(fields, name=name, label="parameter")
    schema, extra = parameters.schema, _extra(builder, visible, name, docstring)
    if extra is not None:
        schema = {**schema, "additionalProperties": extra.schema or True}
        # Not the names that are filled in otherwise.
        reserved = declared.bound | {injected for injected in (context, run_context) if injected}
        parameters = replace(parameters, extra=extra, reserved=reserved)
    elif not parameters.types:
        schema = {"type": "object", "properties": {}}
    return Signature(
        name=name,
        description=description or docstring.description or name.replace("_", " ").strip().capitalize(),
        parameters=builder.definitions.resolve(schema),
        response=_response(declared.returns),
        binding=_binding(declared, fields, parameters, (context, run_context)),
    )


def _injected(parameters: Iterable[Parameter], marker: type, function: str) -> str | None:
    """Return the name of the parameter that is marked as a context."""
    names = [parameter.name for parameter in parameters if _is_marked(parameter.hint, marker)]
    if len(names) > 1:
        hint = "Context" if marker is Injected else "RunContext"
        raise SchemaError(f"{function}: {', '.join(names)} are all annotated with {hint}; only one parameter may be")
    return names[0] if names else None


def _is_marked(hint: Any, marker: type) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_marked(member, marker) for member in typing.get_args(hint))
    return hint is marker or origin is marker or marker in getattr(hint, "__metadata__", ())


def _fields(parameter: Parameter, declared: Declaration, docstring: Docstring) -> Iterable[Field]:
    """Return the fields of the parameters object that a parameter stands for."""
    name, description = parameter.name, docstring.parameters.get(parameter.name, "")
    unpacked = _unpacked(parameter.hint)
    if parameter.kind is _KEYWORDS:
        # `**options: Unpack[Options]` has the fields of a TypedDict as parameters.
        record = record_of(unpacked, "in")
        if unpacked is not None and record is None:
            raise SchemaError(f"parameter {name!r}: only a TypedDict can be unpacked, not {hint_name(unpacked)}")
        return record.fields if record is not None else ()
    if parameter.kind is _VARIADIC:
        if unpacked is None:
            hint: Any = types.GenericAlias(list, (_hint(parameter),))
            return (Field(name, name, hint, required=False, description=description),)
        is_fixed = typing.get_origin(unpacked) is tuple and Ellipsis not in typing.get_args(unpacked)
        hint = unpacked if typing.get_origin(unpacked) is tuple else tuple
        return (Field(name, name, hint, required=is_fixed, description=description),)
    is_first = parameter is declared.parameters[0]
    hint = _dispatched(parameter, declared.dispatch_types) if is_first else _hint(parameter)
    is_required = parameter.default is NO_DEFAULT
    return (unwrap_default(Field(name, name, hint, is_required, parameter.default, description)),)


def _unpacked(hint: Any) -> Any:
    """Return what a hint unpacks: `X` of `Unpack[X]` or `*X`; None if it unpacks nothing."""
    if typing.get_origin(hint) in special_forms("Unpack"):
        return typing.get_args(hint)[0]
    if getattr(hint, "__unpacked__", False):
        return types.GenericAlias(typing.get_origin(hint), typing.get_args(hint))
    return None


def _hint(parameter: Parameter) -> Any:
    """Return the hint, or the type of the default. A default of None is allowed even if the hint forgets it."""
    hint, default = parameter.hint, parameter.default
    if hint is NO_HINT:
        return type(default) if default is not None and _is_expressible(type(default)) else Any
    if default is not None or hint is None:
        return hint
    if hasattr(hint, "__metadata__"):
        return Annotated[(Optional[hint.__origin__], *hint.__metadata__)]  # noqa: UP045 - not every hint has an |
    return Optional[hint]  # noqa: UP045 - as above


def _dispatched(parameter: Parameter, dispatch_types: tuple[Any, ...]) -> Any:
    """Return the hint of the first parameter: for `functools.singledispatch`, the types it has implementations for."""
    members = [cls for cls in dispatch_types if cls is not object and _is_expressible(cls)]
    if not members:
        return _hint(parameter)
    own = () if parameter.hint in (NO_HINT, Any, object) else (_hint(parameter),)
    return typing.Union[(*members, *own)]


def _is_expressible(hint: Any) -> bool:
    try:
        SchemaBuilder("in").build(hint)
    except SchemaError:
        return False
    return True


def _extra(
    builder: SchemaBuilder, parameters: list[Parameter], function: str, docstring: Docstring
) -> TypeSchema | None:
    """Return the type of what `**keywords` takes."""
    for parameter in parameters:
        if parameter.kind is _KEYWORDS and _unpacked(parameter.hint) is None:
            built = builder.build_at(f"parameter {parameter.name!r} of {function}", _hint(parameter))
            return built.describe(docstring.parameters.get(parameter.name, ""))
    return None


def _response(hint: Any) -> Schema | None:
    builder = SchemaBuilder("out")
    try:
        return builder.definitions.resolve(builder.build(Any if hint is NO_HINT else hint).schema) or None
    except SchemaError:
        return None  # the model does without a declared result


def _binding(
    declared: Declaration,
    fields: list[Field],
    parameters: ObjectSchema,
    injected: tuple[str | None, str | None],
) -> Binding:
    context, run_context = injected
    by_kind: dict[Any, list[Parameter]] = {}
    for parameter in declared.parameters:
        by_kind.setdefault(parameter.kind, []).append(parameter)
    positional = by_kind.get(inspect.Parameter.POSITIONAL_ONLY, [])
    either = by_kind.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
    variadic = by_kind.get(_VARIADIC, [])
    factories = {field.key: field.factory for field in fields if field.factory is not None}
    defaults = {each.name: each.default for each in declared.parameters if each.default is not NO_DEFAULT}
    return Binding(
        parameters=parameters,
        takes_json=not (positional or variadic or factories or parameters.extra or context or run_context)
        and all(each.takes_json for each in parameters.types.values()),
        positional=tuple((each.name, each.default) for each in positional),
        before_variadic=tuple((each.name, each.default) for each in either) if variadic else (),
        variadic=variadic[0].name if variadic else None,
        factories=factories,
        context=context,
        context_default=None if context is None else defaults.get(context),
        run_context=run_context,
    )
