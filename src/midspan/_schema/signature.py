"""A Python callable → its JSON Schema, its arguments from JSON and its result to JSON.

`*numbers: float` is an optional array `numbers`; `**labels: str` lets any further argument be a text.
The model does not see parameters annotated with `Context[…]`, which get the caller's own object, or `RunContext`.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Optional, TypeVar

from msgspec import Struct

from midspan._schema.jsonable import to_jsonable
from midspan._schema.signatures.binding import Binding, Call, Injections, binding_of
from midspan._schema.signatures.callables import UNKNOWN, Parameter, declaration
from midspan._schema.signatures.definitions import Schema
from midspan._schema.signatures.docstrings import Documentation, documentation
from midspan._schema.signatures.hints import Form, Forms
from midspan._schema.signatures.records import NO_DEFAULT, Field, record_of
from midspan._types.context import NO_CONTEXT, RunContext
from midspan.errors import SchemaError

T = TypeVar("T")


class Injected:
    """Marks a hint as that of a parameter which the model never sees."""


Context = Annotated[T, Injected]
"""`def f(city: str, context: Context[Deps])`: for a type checker, and in the function, it is simply a `Deps`."""


class Signature(Struct, frozen=True, eq=False):
    """What a model is told about a callable, and how JSON goes in and out of it."""

    name: str
    description: str
    parameters: Schema
    response: Schema | None
    """None if the return annotation says nothing."""
    is_async: bool
    context_parameter: str | None
    binding: Binding

    def bind(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        """With what to call the function, as `(args, kwargs)`; an ArgumentError if a value is not of its type.

        It makes values and checks them only as far as that needs; the schema is checked elsewhere, before.
        """
        return self.binding(arguments, context)

    def result(self, value: Any) -> Any:
        """What the function returned, as `response` says it looks; a ResultError if JSON cannot say it."""
        return to_jsonable(value)


def signature_of(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Signature:
    """The signature of any callable; a SchemaError, now and not at a call, if something in it cannot be said."""
    declared = declaration(function)
    name = name or declared.name
    if not name:
        raise SchemaError("a lambda has no name that a model could call it by; give it one with name=…")
    written = documentation(declared.docstring)
    injected, visible = _split_injected(declared.parameters, name)
    forms = Forms("in")
    fields = [field for parameter in visible for field in _fields(parameter, written)]
    shape = forms.object_form(fields, name=name, what="parameter")
    extra = _extra(forms, visible, name)
    return Signature(
        name=name,
        description=description or written.description or name.replace("_", " ").strip().capitalize(),
        parameters=_parameters(forms, shape.schema, extra),
        response=_response(declared.returns, name),
        is_async=declared.is_async,
        context_parameter=injected[0],
        binding=binding_of(declared, fields, shape=shape, extra=extra, injected=injected),
    )


def _split_injected(parameters: Iterable[Parameter], function: str) -> tuple[Injections, list[Parameter]]:
    """Separate the parameters that Midspan fills in from those that the model sees."""
    injected: dict[type, list[str]] = {Injected: [], RunContext: []}
    visible: list[Parameter] = []
    for parameter in parameters:
        kind = _injected_kind(parameter.hint)
        if kind is None:
            visible.append(parameter)
        else:
            injected[kind].append(parameter.name)
    for kind, names in injected.items():
        if len(names) > 1:
            hint = "Context" if kind is Injected else "RunContext"
            raise SchemaError(
                f"{function}: {', '.join(names)} are all annotated with {hint}; only one parameter may be"
            )
    context, run_context = (next(iter(names), None) for names in injected.values())
    return (context, run_context), visible


def _injected_kind(hint: Any) -> type | None:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return next((kind for member in typing.get_args(hint) if (kind := _injected_kind(member))), None)
    if hint is RunContext or origin is RunContext:
        return RunContext
    return Injected if Injected in getattr(hint, "__metadata__", ()) else None


def _fields(parameter: Parameter, written: Documentation) -> Iterable[Field]:
    hint, is_variadic = _hint(parameter), parameter.kind is _VARIADIC
    if parameter.kind is _KEYWORDS:
        # `**options: Unpack[Options]` has the fields of a TypedDict for parameters.
        record = record_of(typing.get_args(hint)[0], "in") if _is_unpacked(hint) else None
        return record.fields if record is not None else ()
    field = Field(
        key=parameter.name,
        keyword=parameter.name,
        hint=types.GenericAlias(list, (hint,)) if is_variadic else hint,
        required=parameter.default is NO_DEFAULT and not is_variadic,
        default=parameter.default,
        description=written.parameters.get(parameter.name, ""),
    )
    return (field,)


def _hint(parameter: Parameter) -> Any:
    """The hint, or what the default tells. A default of None is always allowed, whatever the hint forgets."""
    hint, default = parameter.hint, parameter.default
    if hint is UNKNOWN:
        return _told_by(default)
    if default is not None or hint is None:
        return hint
    if hasattr(hint, "__metadata__"):
        return Annotated[(Optional[hint.__origin__], *hint.__metadata__)]  # noqa: UP045 - not every hint has an |
    return Optional[hint]  # noqa: UP045 - as above


def _told_by(default: Any) -> Any:
    if default is NO_DEFAULT or default is None:
        return Any
    try:
        Forms("in").form(type(default))
    except SchemaError:
        return Any
    return type(default)


def _is_unpacked(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Unpack


def _extra(forms: Forms, parameters: Iterable[Parameter], function: str) -> Form | None:
    """The form of what `**keywords` takes."""
    for parameter in parameters:
        if parameter.kind is _KEYWORDS and not _is_unpacked(parameter.hint):
            return _said(forms, _hint(parameter), f"parameter {parameter.name!r} of {function}")
    return None


def _said(forms: Forms, hint: Any, place: str) -> Form:
    try:
        return forms.form(hint)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from error


def _parameters(forms: Forms, schema: Schema, extra: Form | None) -> Schema:
    if extra is not None:
        schema = {**schema, "additionalProperties": extra.schema or True}
    elif not schema["properties"]:
        schema = {"type": "object", "properties": {}}
    return forms.definitions.resolved(schema)


def _response(hint: Any, function: str) -> Schema | None:
    forms = Forms("out")
    form = _said(forms, Any if hint is UNKNOWN else hint, f"the return value of {function}")
    return forms.definitions.resolved(form.schema) or None


_VARIADIC = inspect.Parameter.VAR_POSITIONAL
_KEYWORDS = inspect.Parameter.VAR_KEYWORD
