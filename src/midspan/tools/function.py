"""Python functions as tools: `@tool`, its options, and methods."""

import inspect
import re
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct

from midspan._types.context import RunContext
from midspan._types.specs import Effects, ToolSpec
from midspan._types.texts import check_text
from midspan.errors import ArgumentError, ConfigError, ResultError, SchemaError

P = ParamSpec("P")
R = TypeVar("R")

Final = bool | Callable[[Any], bool]
Bind = Callable[[dict[str, Any], RunContext[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Returns the positional and keyword arguments of a call. Raises ArgumentError if a value is not of its type."""

_MAX_SECONDS = 1e300
"""Larger numbers cannot be added to the time of a clock."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a tool beside its function and its schemas."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    """A name for people."""
    reads: str | Iterable[str] = ()
    """What the tool reads, with placeholders for its arguments: `"account:{id}"`."""
    writes: str | Iterable[str] = ()
    """What the tool changes."""
    idempotent: bool = False
    """A second identical call changes nothing more."""
    read_only: bool | None = None
    """The tool changes nothing."""
    repeatable: bool = False
    """Loop detection ignores the tool."""
    final: Final = False
    """The result ends the run: always, or if this function of the result returns true."""
    examples: Iterable[dict[str, Any]] = ()
    """Arguments of good calls."""
    timeout: float | None = 30.0
    """In seconds; None means no limit."""
    max_result_chars: int = 200_000
    """Longer results, in characters of JSON, are cut before a model pays for them."""
    check_formats: bool = False
    """Arguments and results must have the `format` that a schema declares, such as `ipv4` or `email`."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "ToolOptions":
        for name in options:
            if name not in cls.__struct_fields__:
                raise ConfigError(f"unknown tool option {name!r}; known options: {', '.join(cls.__struct_fields__)}")
        made = cls(**options)
        if made.name is not None:
            check_name(made.name)
        return made

    def spec(
        self, name: str, description: str, parameters: dict[str, Any], response: dict[str, Any] | None
    ) -> ToolSpec:
        """Return the spec of a tool with these options. Raises ConfigError if an option is not valid."""
        check_text(description, f"{name}: description")
        try:
            self._check()
            effects = self._effects(parameters)
            examples = self._examples()
        except SchemaError as error:
            raise SchemaError(f"{name}: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        return ToolSpec(
            name,
            description,
            parameters,
            response,
            effects,
            examples,
            self.final is not False,
            self.repeatable,
            self.title,
            read_only=self.read_only,
        )

    def _check(self) -> None:
        for option in ("idempotent", "repeatable", "check_formats"):
            if not isinstance(getattr(self, option), bool):
                raise ConfigError(f"{option} must be True or False, got {getattr(self, option)!r}")
        if self.title is not None:
            check_text(self.title, "title")
        if self.read_only not in (True, False, None):
            raise ConfigError(f"read_only must be True, False or None, got {self.read_only!r}")
        if self.timeout is not None and not is_seconds(self.timeout):
            raise ConfigError(f"timeout must be a positive number of seconds or None, got {self.timeout!r}")
        size = self.max_result_chars
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"max_result_chars must be a positive number of characters, got {size!r}")
        if not isinstance(self.final, bool) and not (callable(self.final) and takes_values(self.final, 1)):
            raise ConfigError(f"final must be True, False or a function of the result, got {self.final!r}")
        if is_async(self.final):
            raise ConfigError("final is not awaited; pass a plain function of the result")

    def _effects(self, parameters: dict[str, Any]) -> Effects | None:
        effects = Effects(_templates("reads", self.reads), _templates("writes", self.writes), self.idempotent)
        if self.read_only and effects.writes:
            raise ConfigError(f"read_only contradicts writes={effects.writes!r}")
        properties = parameters.get("properties")
        names = [name for name in properties if isinstance(name, str)] if isinstance(properties, dict) else []
        for template in (*effects.reads, *effects.writes):
            for placeholder in _PLACEHOLDER.findall(template):
                if placeholder not in names:
                    known = ", ".join(names) or "none"
                    raise SchemaError(f"{template!r} names {placeholder!r}, but the parameters are: {known}")
        return None if effects == Effects() else effects

    def _examples(self) -> tuple[dict[str, Any], ...]:
        """Return the examples as JSON data; they are copies, so later changes by the caller have no effect."""
        if isinstance(self.examples, str | bytes | Mapping) or not isinstance(self.examples, Iterable):
            raise SchemaError(f"examples must be a list of dicts, the arguments of calls, got {self.examples!r}")
        return tuple(map(_example, self.examples))


class ToolKeywords(TypedDict, total=False):
    """The fields of ToolOptions as keyword arguments, without name and description."""

    title: str | None
    reads: str | Iterable[str]
    writes: str | Iterable[str]
    idempotent: bool
    read_only: bool | None
    repeatable: bool
    final: Final
    examples: Iterable[dict[str, Any]]
    timeout: float | None
    max_result_chars: int
    check_formats: bool


class FunctionKeywords(ToolKeywords, total=False):
    """All of them."""

    name: str | None
    description: str | None


def check_name(name: Any) -> None:
    check_text(name, "the name of a tool")
    if not name:
        raise ConfigError("the name of a tool must not be empty")


def is_seconds(value: Any) -> bool:
    """Whether a value is a positive number of seconds. True and False are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MAX_SECONDS


def is_async(function: Any) -> bool:
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method is wanted, not whether there is one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def takes_values(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with this many values, as far as Python can tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _templates(option: str, templates: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(templates, str):
        templates = (templates,)
    if isinstance(templates, bytes | Mapping) or not isinstance(templates, Iterable):
        raise SchemaError(f"{option} must be a name such as 'account:{{id}}', or several, got {templates!r}")
    names = tuple(templates)
    for name in names:
        if not isinstance(name, str) or not name or set("{}") & set(_PLACEHOLDER.sub("", name)):
            raise SchemaError(f"{option}: {name!r} is not valid; write 'account:{{id}}', 'account:*' or '*'")
    return names


def _example(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise SchemaError(f"an example must be a dict, the arguments of a call, got {arguments!r}")
    from midspan._schema.jsonable import to_jsonable  # few tools have examples

    try:
        example: dict[str, Any] = to_jsonable(arguments)
    except ResultError as error:
        raise SchemaError(f"the example {arguments!r} is not JSON serializable: {error}") from error
    return example


class Tool(Generic[P, R]):
    """A function with what a model and a run need to know about it. It can still be called like the function."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        *,
        bind: Bind | None = None,
        options: ToolOptions | None = None,
        enforces_response: bool = False,
    ) -> None:
        """`bind=None` passes valid arguments to the function by name, as they are."""
        from midspan._schema.arguments import SchemaValidator  # slow to import

        self.spec = spec
        self.function = function
        self.bind = bind
        self.options = options or ToolOptions()
        self.is_async = is_async(function)
        self.enforces_response = enforces_response
        """Whether a return value that does not match `spec.response` is an error, or the model only gets a note."""
        try:
            formats = self.options.check_formats
            parameters = spec.parameters or {"type": "object"}
            self.parameters = SchemaValidator(parameters, label="parameters", formats=formats)
            response = spec.response
            self.response = None if response is None else SchemaValidator(response, label="response", formats=formats)
            self._check_examples()
        except SchemaError as error:
            raise SchemaError(f"failed to create tool {spec.name}: {error}") from error

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def _check_examples(self) -> None:
        for example in self.spec.examples:
            validated = self.parameters.validate(example)
            if validated.problems:
                raise SchemaError(f"the example {example!r} is not a valid call: {validated.problems[0]}")
            try:
                if self.bind is not None:
                    self.bind(validated.arguments, RunContext())
            except ArgumentError as error:
                raise SchemaError(f"the example {example!r} is not a valid call: {error}") from error


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[FunctionKeywords]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function. Name, description and schemas come from its signature and its docstring.

    The options are the fields of `ToolOptions`. A method that is decorated in its class is a tool of each object.
    """
    if function is None:
        return lambda function: tool(function, **options)
    return _ToolMethod(function, options) if _is_method(function) else tool_of(function, **options)


def tool_of(function: Callable[..., Any], **options: Unpack[FunctionKeywords]) -> Tool[..., Any]:
    """Return the tool of a callable. A callable that already is a tool is returned as it is."""
    function = _bound(function)
    if isinstance(function, Tool):
        if options:
            raise ConfigError(f"{function.name} is already a tool; pass options where it is created")
        return function
    settings = ToolOptions.of(options)
    from midspan._schema.signature import signature_of  # slow to import

    signature = signature_of(function, name=settings.name, description=settings.description)
    spec = settings.spec(signature.name, signature.description, signature.parameters, signature.response)
    return Tool(spec, function, bind=None if signature.binding.takes_json else signature.binding, options=settings)


class _ToolMethod:
    """A method that was decorated with `@tool`. As an attribute of an object it is a tool.

    Schemas are the same for all objects and made once. Nothing is stored in the objects: a copy of an object has tools
    of its own, and objects with such methods can be pickled.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self._function = function
        self._options = options
        self._tool: Tool[..., Any] | None = None
        self._is_making = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self.bound_to(instance)

    def bound_to(self, instance: Any) -> Any:
        """Return the tool of an object."""
        method = types.MethodType(self._function, instance)
        if self._tool is None:
            with _making:
                if self._is_making:  # inspect looks the method up again, in search of a docstring
                    return method
                self._is_making = True
                try:
                    self._tool = tool_of(method, **self._options)
                finally:
                    self._is_making = False
        bound = copy(self._tool)
        bound.function = method
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool method {self.name}>"


_making = threading.RLock()
"""Held while the schemas of a method are made."""


def _is_method(function: object) -> bool:
    """Whether the function is written in a class and takes the object or the class first."""
    if not isinstance(function, types.FunctionType):
        return False
    first = next(iter(inspect.signature(function, follow_wrapped=False).parameters), "")
    scope = function.__qualname__.rpartition(".")[0]
    return first == "self" or (first == "cls" and bool(scope) and not scope.endswith("<locals>"))


def _bound(function: Any) -> Any:
    """Return the tool of a class method: Python 3.13 and later do not bind the method inside `classmethod`."""
    if isinstance(function, _ToolMethod):
        raise SchemaError(f"{function.name} is a method without its object; pass the method of an object")
    method = getattr(function, "__func__", None)
    return method.bound_to(function.__self__) if isinstance(method, _ToolMethod) else function
