"""Python functions as tools: `@tool`, its options, and methods."""

import inspect
import re
import types
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from midspan._types.context import RunContext
from midspan._types.specs import Effects, ToolSpec
from midspan._types.texts import NOT_JSON, check_text
from midspan.errors import ConfigError, SchemaError

if TYPE_CHECKING:
    from midspan._schema.arguments import SchemaValidator

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

Bind = Callable[[dict[str, Any], RunContext[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Returns the positional and keyword arguments of a call. Raises ArgumentError if a value is not of its type."""

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
"""An argument in the declaration of an effect: `account:{id}`."""
_SPEC_OPTIONS = ("title", "read_only", "destructive", "open_world", "repeatable")
"""Options that a spec has under the same name, with the same value."""
TimeoutSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e300)]
"""A timeout. It is added to the time of a clock, so it must not be infinite, or nearly so."""


class DeclaredToolOptions(TypedDict, total=False):
    """The options of a tool that is declared with a name, a description and schemas; `tool` describes them."""

    title: str | None
    reads: str | Collection[str]
    writes: str | Collection[str]
    idempotent: bool
    read_only: bool | None
    destructive: bool | None
    open_world: bool | None
    repeatable: bool
    examples: Collection[dict[str, Any]]
    timeout: TimeoutSeconds | None
    max_result_chars: Annotated[int, msgspec.Meta(ge=1)]
    isolate: bool
    check_formats: bool
    final: bool | Callable[[Any], bool]


class ToolOptions(DeclaredToolOptions, total=False):
    """The options of `@tool`. Name and description are by default those of the function."""

    name: str | None
    description: str | None


def _with_options(spec: ToolSpec, options: DeclaredToolOptions) -> ToolSpec:
    """Return the spec with these options, which override its fields. Raises ConfigError if an option is not valid."""
    check_text(spec.description, "the description of a tool")
    try:
        _check_options(options)
        effects = _effects(spec, options)
        encoded = msgspec.json.encode(options.get("examples", spec.examples))
        examples = msgspec.json.decode(encoded, type=tuple[dict[str, Any], ...])  # a copy, as the caller may change it
    except ConfigError as error:
        raise type(error)(f"{spec.name}: {error}") from error
    except NOT_JSON as error:
        raise SchemaError(f"{spec.name}: the examples are not JSON serializable: {error}") from error
    final = bool(options.get("final", spec.final))
    others = {name: options.get(name, getattr(spec, name)) for name in _SPEC_OPTIONS}
    return replace(spec, effects=effects, examples=examples, final=final, **others)


def _check_options(options: DeclaredToolOptions) -> None:
    types = ToolOptions.__annotations__
    for option, value in options.items():
        if option not in types:
            raise ConfigError(f"unknown tool option {option!r}; known options: {', '.join(sorted(types))}")
        if option == "final":
            if not isinstance(value, bool) and (is_async(value) or not callable(value)):
                raise ConfigError(f"final must be True, False or a sync function of the result, got {value!r:.80}")
            continue
        try:
            msgspec.convert(value, types[option])
        except msgspec.ValidationError as error:
            raise ConfigError(f"invalid option {option}={value!r:.80}: {error}") from error


def _effects(spec: ToolSpec, options: DeclaredToolOptions) -> Effects | None:
    if options.keys().isdisjoint(("reads", "writes", "idempotent")):
        return spec.effects
    reads, writes = _templates(options.get("reads", ())), _templates(options.get("writes", ()))
    if writes and options.get("read_only", spec.read_only):
        raise ConfigError(f"read_only contradicts writes={writes!r}")
    parameters = (spec.parameters or {}).get("properties", {})
    if unknown := set(PLACEHOLDER.findall(" ".join((*reads, *writes)))) - parameters.keys():
        known = ", ".join(parameters) or "none"
        raise SchemaError(f"reads and writes name {min(unknown)!r}, but the parameters are: {known}")
    effects = Effects(reads, writes, options.get("idempotent", False))
    return None if effects == Effects() else effects


def _templates(names: str | Collection[str]) -> tuple[str, ...]:
    templates = (names,) if isinstance(names, str) else tuple(names)
    for template in templates:
        if not template or set("{}") & set(PLACEHOLDER.sub("", template)):
            raise SchemaError(f"{template!r} is not valid; write 'account:{{id}}', 'account:*' or '*'")
    return templates


def check_name(name: str) -> None:
    """Raise ConfigError if a name cannot be sent, or would break a line of a log."""
    check_text(name, "the name of a tool")
    if not name or not name.isprintable():
        raise ConfigError(f"the name of a tool must consist of printable characters, got {name!r:.80}")


def is_async(function: Any) -> bool:
    method = getattr(type(function), "__call__", None)  # noqa: B004 - `callable` does not return the method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


class Tool(Generic[P, R]):
    """A function with what a model and a run need to know about it. It can still be called like the function."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        options: DeclaredToolOptions | None = None,
        *,
        bind: Bind | None = None,
        enforces_response: bool = False,
    ) -> None:
        """`bind=None` passes valid arguments to the function by name, as they are."""
        options = options or {}
        self.spec = _with_options(spec, options)
        self.function = function
        self.bind = bind
        self.timeout = options.get("timeout", 30.0)
        self.final = options.get("final", spec.final)
        self.max_result_chars = options.get("max_result_chars", 200_000)
        self.isolate = options.get("isolate", False)
        if self.isolate:
            from midspan.tools.workers.source import check_isolated  # few tools need it

            check_isolated(spec.name, function)
        self.is_async = is_async(function)
        self.is_method = False
        """Whether it is a method that was decorated in its class and is not bound to an instance."""
        self.enforces_response = enforces_response
        """Whether a return value that does not match `spec.response` is an error. Otherwise the model gets a hint."""
        self._check_formats = options.get("check_formats", False)
        try:
            if enforces_response or self.spec.examples:  # schemas made from signatures are always valid
                self.parameters, self.response  # noqa: B018 - compiles them
            for example in self.spec.examples:
                if problems := self.parameters.validate(example).problems:
                    raise SchemaError(f"the example {example!r} is not a valid call: {problems[0]}")
        except SchemaError as error:
            raise SchemaError(f"failed to create tool {self.name}: {error}") from error

    @cached_property
    def parameters(self) -> "SchemaValidator":
        """The schema of the arguments, compiled with the first call."""
        return self._compile(self.spec.parameters or {"type": "object"}, "parameters")

    @cached_property
    def response(self) -> "SchemaValidator | None":
        return None if self.spec.response is None else self._compile(self.spec.response, "response")

    def _compile(self, schema: dict[str, Any], label: str) -> "SchemaValidator":
        from midspan._schema.arguments import SchemaValidator  # slow to import

        return SchemaValidator(schema, label=label, check_formats=self._check_formats)

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Tool[P, R]": ...

    @overload
    def __get__(self: "Tool[Concatenate[Any, Q], R]", instance: object, owner: type | None = None) -> "Tool[Q, R]": ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind a method to an instance. Nothing is stored in the instance, so it can be copied and pickled."""
        if instance is None or not self.is_method:
            return self
        from copy import copy  # loaded with the first method

        self.parameters, self.response  # noqa: B018 - compiled once for all instances
        bound: Tool[..., Any] = copy(self)
        bound.function, bound.is_method = types.MethodType(self.function, instance), False
        return bound

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Make a tool of a function. Name, description and schemas come from its signature and its docstring.

    A method that is decorated in its class becomes a tool of each instance.

    The options, as in `@tool(timeout=5)`:

    - `name` and `description` replace those of the function; `title` is a name for people.
    - `timeout`: in seconds, 30 by default; None means no limit.
    - `final`: the result ends the run, always or if this function of the result returns true.
    - `isolate`: calls run in a worker process, which is killed at the timeout.
    - `read_only`, `destructive`, `open_world` and `idempotent`: what calls may do.
    - `reads` and `writes`: what calls read and change, such as `"account:{id}"`.
    - `repeatable`: loop detection ignores the tool.
    - `max_result_chars`: longer results are cut; 200,000 by default.
    - `examples`: arguments of example calls.
    - `check_formats`: arguments and results must have the `format` that a schema declares, such as `email`.
    """
    if function is None:
        return lambda function: tool(function, **options)
    if not _is_method(function):
        return tool_of(function, **options)
    method = tool_of(partial(function, None), **options)  # the schema has no parameter for `self`
    method.function, method.is_method = function, True
    return method


def tool_of(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool[..., Any]:
    """Return the tool of a callable. A callable that already is a tool is returned as it is."""
    method = getattr(function, "__func__", None)
    if isinstance(method, Tool):  # a class method: Python 3.13 and later do not bind what is inside `classmethod`
        function = method.__get__(getattr(function, "__self__", None))
    if isinstance(function, Tool):
        if options:
            raise ConfigError(f"{function.name} is already a tool; pass options where it is created")
        if function.is_method:
            raise SchemaError(f"{function.name} is an unbound method; pass the method of an instance")
        return function
    name, description = options.pop("name", None), options.pop("description", None)
    if name is not None:
        check_name(name)
    from midspan._schema.signature import signature_of  # slow to import

    signature = signature_of(function, name=name, description=description)
    binding = signature.bind
    spec = ToolSpec(
        signature.name,
        signature.description,
        signature.parameters,
        signature.response,
        needs_context=binding.needs_context,
    )
    return Tool(spec, function, options, bind=None if binding.needs_no_conversion else binding)


def _is_method(function: object) -> bool:
    """Whether the function is defined in a class and its first parameter is `self` or `cls`."""
    if not isinstance(function, types.FunctionType):
        return False
    first = next(iter(inspect.signature(function).parameters), "")
    scope = function.__qualname__.rpartition(".")[0]
    return first == "self" or (first == "cls" and bool(scope) and not scope.endswith("<locals>"))
