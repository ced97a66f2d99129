"""JSON arguments → the positional and keyword arguments with which a function is called."""

import inspect
import types
import typing
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.signatures.callables import Declaration
from midspan._schema.signatures.conversion import argument_error, converted
from midspan._schema.signatures.hints import Form
from midspan._schema.signatures.records import NO_DEFAULT, Field
from midspan._types.context import NO_CONTEXT, RunContext
from midspan.errors import ArgumentError

Call = tuple[tuple[Any, ...], dict[str, Any]]
Injections = tuple[str | None, str | None]
"""The parameters that get the caller's own object and the RunContext; the model sees neither."""


class Binding(Struct, frozen=True):
    """How one function takes its arguments."""

    names: tuple[str, ...]
    """The parameters that the model fills in, in order, as `shape` has them."""
    shape: Any
    """The Struct with a field for each of them."""
    plain: dict[str, frozenset[type]]
    """The JSON types that need no conversion, for parameters that have such."""
    plain_items: tuple[tuple[str, frozenset[type]], ...]
    """The same for the items of lists and the values of dicts."""
    required: frozenset[str]
    is_simple: bool
    """Whether plain arguments are the whole call: no context, nothing by position."""
    positional: tuple[tuple[str, Any], ...] = ()
    """Parameters that have no keyword, with their defaults."""
    before_variadic: tuple[tuple[str, Any], ...] = ()
    """Parameters that must be positional if `*variadic` gets anything, with their defaults."""
    variadic: str | None = None
    extra: Any = None
    """The hint of the values of `**keywords`; None if there are none."""
    reserved: frozenset[str] = frozenset()
    """Names that `**keywords` must not get, because somebody else fills them in."""
    context: str | None = None
    context_default: Any = None
    """What a function says its context is if nobody gives one."""
    run_context: str | None = None
    """The parameter that gets the RunContext."""

    @property
    def takes_json(self) -> bool:
        """Whether arguments that are valid by the schema can be given to the function just as they are."""
        # A float is not among them: JSON may write it as an integer, and the function shall not see that.
        scalars = all(self.plain.get(name, _NOT_PLAIN) <= _SAME_IN_JSON for name in self.names)
        return scalars and not (self.positional or self.variadic or self.extra or self.context or self.run_context)

    def __call__(self, arguments: dict[str, Any], context: RunContext[Any] = NO_CONTEXT) -> Call:
        # Most functions have plain parameters and get them in the types that JSON has, so this way is short.
        plain = self.plain
        for name, value in arguments.items():
            if name not in plain or type(value) not in plain[name]:
                return self._call(self._converted(arguments), context)
        if len(arguments) < len(self.names) and not self.required <= arguments.keys():
            return self._call(self._converted(arguments), context)
        values = arguments.copy()
        for name, kinds in self.plain_items:
            items = values.get(name)
            if items is not None:
                if not kinds.issuperset(map(type, items.values() if type(items) is dict else items)):
                    return self._call(self._converted(arguments), context)
                # The function may change what it is given, and the conversation must not change with it.
                values[name] = items.copy()
        return ((), values) if self.is_simple else self._call(values, context)

    def _call(self, values: dict[str, Any], context: RunContext[Any]) -> Call:
        if self.context is not None:
            values[self.context] = self.context_default if context.user is None else context.user
        if self.run_context is not None:
            values[self.run_context] = context
        if not self.positional and self.variadic is None:
            return (), values
        return self._positional(values), values

    def _converted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        # What a hint leaves open, msgspec hands on as it is, and the function may change what it is given.
        arguments = _copied(arguments)
        further = self._further(arguments) if self.extra is not None else {}
        own = {name: value for name, value in arguments.items() if name not in further} if further else arguments
        try:
            extra = converted(further, types.GenericAlias(dict, (str, self.extra))) if further else {}
            values = zip(self.names, msgspec.structs.astuple(converted(own, self.shape)), strict=True)
        except RecursionError as error:
            raise ArgumentError("", "nested too deeply") from error
        except ValueError as error:
            raise self._error(own, further) from error
        return {name: value for name, value in values if value is not msgspec.UNSET} | extra

    def _further(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What `**keywords` gets; a reserved name is left to be refused with the unknown ones."""
        names = arguments.keys() - self.reserved - set(self.names)
        return {name: arguments[name] for name in arguments if name in names}

    def _error(self, own: dict[str, Any], further: dict[str, Any]) -> ArgumentError:
        hints = [(own, self.shape), (further, types.GenericAlias(dict, (str, self.extra)))]
        return argument_error(hints if further else hints[:1])

    def _positional(self, values: dict[str, Any]) -> tuple[Any, ...]:
        rest = values.pop(self.variadic, ()) if self.variadic is not None else ()
        in_front = (*self.positional, *(self.before_variadic if rest else ()))
        return (*(values.pop(name, default) for name, default in in_front), *rest)


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = msgspec.to_builtins(arguments)
    except RecursionError as error:
        raise ArgumentError("", "nested too deeply") from error
    except (TypeError, ValueError):
        return arguments  # something in it is not of JSON, and what is wrong with it will be told
    return copied


def binding_of(
    declared: Declaration, fields: list[Field], *, shape: Form, extra: Form | None, injected: Injections
) -> Binding:
    """The binding of a callable whose visible parameters are these fields."""
    context, run_context = injected
    names = tuple(field.key for field in fields)
    hints = dict(zip(names, (member.type for member in msgspec.structs.fields(shape.hint)), strict=True))
    defaults: dict[str | None, Any] = {
        each.name: each.default for each in declared.parameters if each.default is not NO_DEFAULT
    }
    variadic = [each.name for each in declared.parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
    positional = [each for each in declared.parameters if each.kind is inspect.Parameter.POSITIONAL_ONLY]
    either = [each for each in declared.parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return Binding(
        names=names,
        shape=shape.hint,
        plain={name: kinds for name, hint in hints.items() if (kinds := _plain(hint))},
        plain_items=tuple((name, kinds) for name, hint in hints.items() if (kinds := _plain_items(hint))),
        required=frozenset(field.key for field in fields if field.required),
        is_simple=not (positional or variadic or context or run_context),
        positional=tuple((each.name, each.default) for each in positional),
        before_variadic=tuple((each.name, each.default) for each in either) if variadic else (),
        variadic=variadic[0] if variadic else None,
        extra=extra.hint if extra is not None else None,
        reserved=declared.bound | {name for name in injected if name},
        context=context,
        context_default=defaults.get(context),
        run_context=run_context,
    )


def _plain(hint: Any) -> frozenset[type]:
    """The types of JSON that are all this hint allows; none if something would have to be made of them."""
    if _plain_items(hint):
        return frozenset([typing.get_origin(hint)])
    members = typing.get_args(hint) if typing.get_origin(hint) is typing.Union else (hint,)
    kinds = [kind for member in members for kind in _literal_types(member)]
    return frozenset(kinds) if all(kind in _PLAIN for kind in kinds) else frozenset()


def _literal_types(hint: Any) -> list[Any]:
    """The types of the values of a Literal; of any other hint, itself."""
    return [type(value) for value in typing.get_args(hint)] if typing.get_origin(hint) is typing.Literal else [hint]


def _plain_items(hint: Any) -> frozenset[type]:
    match typing.get_origin(hint), typing.get_args(hint):
        case (kind, (item,)) if kind is list and item in _PLAIN:
            return frozenset([item])
        case (kind, (key, item)) if kind is dict and key is str and item in _PLAIN:
            return frozenset([item])
        case _:
            return frozenset()


_PLAIN = (str, int, float, bool, type(None))
_SAME_IN_JSON = frozenset((str, int, bool, type(None)))
_NOT_PLAIN = frozenset((object,))
