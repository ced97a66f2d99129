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

from midspan._schema.jsonable import to_jsonable
from midspan._schema.paths import Problem
from midspan._schema.signatures.callables import NO_HINT, Declaration, Parameter, read_declaration
from midspan._schema.signatures.conversion import ConversionError, ObjectSchema, Schema, TypeSchema, convert_items
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
    plain: dict[str, frozenset[Any]]
    """For parameters that need no conversion of some JSON types: these types."""
    plain_items: tuple[tuple[str, frozenset[Any]], ...]
    """The same for the items of lists and the values of dicts."""
    is_simple: bool
    """Whether plain arguments are the whole call: no context, nothing by position, no defaults to add."""
    positional: tuple[tuple[str, Any], ...] = ()
    """Parameters without a keyword, with their defaults."""
    before_variadic: tuple[tuple[str, Any], ...] = ()
    """Parameters that must be positional if `*variadic` gets anything, with their defaults."""
    variadic: str | None = None
    extra: TypeSchema | None = None
    """The type of the values of `**keywords`."""
    reserved: frozenset[str] = frozenset()
    """Names that `**keywords` must not get, because they are filled in otherwise."""
    factories: dict[str, Callable[[], Any]] = {}
    """For parameters whose default is `Field(…)` or similar: what makes the value if it is missing."""
    context: str | None = None
    context_default: Any = None
    """The context of a function if the caller passes none."""
    run_context: str | None = None

    @property
    def takes_json(self) -> bool:
        """Whether arguments that are valid by the schema can be passed to the function as they are."""
        return self.is_simple and self.extra is None and all(each.takes_json for each in self.parameters.types.values())

    def __call__(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        # Most functions have plain parameters and get them in the types that JSON has, so this way is short.
        plain = self.plain
        for name, value in arguments.items():
            if name not in plain or type(value) not in plain[name]:
                return self._call(self._convert(arguments), context)
        if not self.parameters.required <= arguments.keys():
            return self._call(self._convert(arguments), context)
        values = arguments.copy()
        for name, item_types in self.plain_items:
            items = values.get(name)
            if items is not None:
                if not item_types.issuperset(map(type, items.values() if type(items) is dict else items)):
                    return self._call(self._convert(arguments), context)
                # The function may change what it gets, and the conversation must not change with it.
                values[name] = items.copy()
        return ((), values) if self.is_simple else self._call(values, context)

    def _call(self, values: dict[str, Any], context: RunContext[Any]) -> Call:
        for name, factory in self.factories.items():
            if name not in values:
                values[name] = factory()
        if self.context is not None:
            values[self.context] = self.context_default if context.user is None else context.user
        if self.run_context is not None:
            values[self.run_context] = context
        rest = values.pop(self.variadic, ()) if self.variadic is not None else ()
        leading = (*self.positional, *(self.before_variadic if rest else ()))
        return (*(values.pop(name, default) for name, default in leading), *rest), values

    def _convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        further = {}
        if self.extra is not None:
            names = arguments.keys() - self.reserved - self.parameters.types.keys()
            further = {name: value for name, value in arguments.items() if name in names}
        named = {name: value for name, value in arguments.items() if name not in further}
        try:
            problems: list[Problem] = []
            try:
                named = self.parameters.convert(named)
            except ConversionError as error:
                problems += error.problems
            if self.extra is not None:
                extra = self.extra.convert
                converted = convert_items(further.items(), (extra for _ in further), problems)
                return {**named, **dict(zip(further, converted, strict=True))}
            if problems:
                raise ConversionError(*problems)
        except ConversionError as error:
            raise error.argument_error() from error
        except RecursionError as error:
            raise ArgumentError("", "nested too deeply") from error
        return named


class Signature(Struct, frozen=True, eq=False):
    """What a model is told about a callable, and how JSON goes in and out of it."""

    name: str
    description: str
    parameters: Schema
    response: Schema | None
    """None if the return hint says nothing, or nothing that JSON Schema can express."""
    is_async: bool
    context_parameter: str | None
    binding: Binding

    def bind(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        """Return the `(args, kwargs)` to call the function with; an ArgumentError if a value is not of its type.

        It converts values, and checks them only as far as that needs; the schema is validated elsewhere, before.
        """
        return self.binding(arguments, context)

    def result(self, value: Any) -> Any:
        """Return what the function returned as JSON data; a ResultError if it is not JSON serializable."""
        return to_jsonable(value)


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
    extra = _extra(builder, visible, name, docstring)
    schema = parameters.schema
    if extra is not None:
        schema = {**schema, "additionalProperties": extra.schema or True}
    elif not parameters.types:
        schema = {"type": "object", "properties": {}}
    return Signature(
        name=name,
        description=description or docstring.description or name.replace("_", " ").strip().capitalize(),
        parameters=builder.definitions.resolve(schema),
        response=_response(declared.returns),
        is_async=declared.is_async,
        context_parameter=context,
        binding=_binding(declared, fields, parameters, extra, (context, run_context)),
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
    extra: TypeSchema | None,
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
        plain={name: each.plain for name, each in parameters.types.items() if each.plain},
        plain_items=tuple((name, each.plain_items) for name, each in parameters.types.items() if each.plain_items),
        is_simple=not (positional or variadic or factories or context or run_context),
        positional=tuple((each.name, each.default) for each in positional),
        before_variadic=tuple((each.name, each.default) for each in either) if variadic else (),
        variadic=variadic[0].name if variadic else None,
        extra=extra,
        reserved=declared.bound | {name for name in injected if name},
        factories=factories,
        context=context,
        context_default=None if context is None else defaults.get(context),
        run_context=run_context,
    )
