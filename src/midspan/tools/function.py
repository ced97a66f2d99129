"""Python functions of this process as tools."""

import inspect
import types
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from midspan._types.context import RunContext
from midspan._types.specs import ToolSpec
from midspan._types.texts import check_text
from midspan.errors import ArgumentError, ConfigError, SchemaError
from midspan.tools.options import (
    Final,
    check_known,
    check_name,
    check_options,
    effects_of,
    examples_of,
    is_async,
    takes_values,
)

if TYPE_CHECKING:
    from midspan._schema.arguments import SchemaValidator
    from midspan._schema.signature import Signature
    from midspan._schema.signatures.binding import Binding

P = ParamSpec("P")
R = TypeVar("R")

Invoke = Callable[[dict[str, Any], RunContext[Any]], Any]
Names = str | Iterable[str]
JsonSchema = dict[str, Any] | str | bytes

DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_RESULT_CHARS = 200_000


class Tool(Generic[P, R]):
    """A function with all that a model and a run need to know of it. It can still be called as the function it is."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[P, R],
        invoke: Invoke,
        *,
        is_async: bool,
        check: Callable[[dict[str, Any]], Iterable[Any]] = lambda _arguments: (),
        final: Final = False,
        timeout: float | None = DEFAULT_TIMEOUT,
        max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
    ) -> None:
        self.spec = spec
        self.function = function
        self.invoke = invoke
        """Takes valid arguments and the context, calls the function."""
        self.is_async = is_async
        self.check = check
        """What stands against arguments beyond their schema: the 31st of February."""
        self.final = final
        self.timeout = timeout
        self.max_result_chars = max_result_chars
        """In characters of JSON; what is longer is cut before a model pays for it."""
        check_options(spec, final=final, timeout=timeout, max_result_chars=max_result_chars)
        try:
            # Compiling loads the validator, so schemas that cannot be wrong are compiled with the first call.
            if not _is_plain(spec.parameters):
                self.parameters  # noqa: B018 - compiles it
            if not _is_plain(spec.response):
                self.response  # noqa: B018 - compiles it
            self._check_examples()
        except SchemaError as error:
            raise SchemaError(f"failed to create tool {spec.name}: {error}") from error

    @cached_property
    def parameters(self) -> "SchemaValidator":
        from midspan._schema.arguments import SchemaValidator  # as above

        return SchemaValidator(self.spec.parameters or {"type": "object"}, label="parameters")

    @cached_property
    def response(self) -> "SchemaValidator | None":
        from midspan._schema.arguments import SchemaValidator  # as above

        return None if self.spec.response is None else SchemaValidator(self.spec.response, label="response")

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def _check_examples(self) -> None:
        for example in self.spec.examples:
            prepared = self.parameters.validate(example)
            problems = [*prepared.problems, *(self.check(prepared.arguments) if not prepared.problems else ())]
            if problems:
                raise SchemaError(f"the example {example!r} is no valid call: {problems[0]}")


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    reads: Names = (),
    writes: Names = (),
    idempotent: bool = False,
    examples: Iterable[dict[str, Any]] = (),
    repeatable: bool = False,
    title: str | None = None,
    read_only: bool | None = None,
    final: Final = False,
    timeout: float | None = DEFAULT_TIMEOUT,
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: name, description and schemas are taken from it, and from nothing else unless given.

    `reads` and `writes` name what it does to the world, with holes for its arguments: `"account:{id}"`.
    `read_only=True` declares, without naming anything, that it changes nothing.
    `final` ends the run with the result, always or if the function given says so of it.
    `repeatable` lets a model make the same call for ever, as one that waits for something may.
    A method in a class becomes a tool with its object.
    """
    if function is None:
        return lambda function: tool(function, **options)
    if _is_method(function):
        return _ToolMethod(function, partial(tool_of, **options))
    return tool_of(function, **options)


def tool_of(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    reads: Names = (),
    writes: Names = (),
    idempotent: bool = False,
    examples: Iterable[dict[str, Any]] = (),
    repeatable: bool = False,
    title: str | None = None,
    read_only: bool | None = None,
    **execution: Any,
) -> Tool[..., Any]:
    """The tool that a callable is; one that is a tool already stays as it is."""
    function = _bound(function)
    if isinstance(function, Tool):
        if name or description or reads or writes or idempotent or examples or repeatable or title or execution:
            raise ConfigError(f"{function.name} is a tool already; give its options where it is made")
        return function
    check_known(execution)
    if name is not None:
        check_name(name)
    if description is not None:
        check_text(description, f"{name or getattr(function, '__name__', 'a tool')}: description")
    from midspan._schema.signature import signature_of  # as above

    signature = signature_of(function, name=name, description=description)
    spec = ToolSpec(
        signature.name,
        signature.description,
        signature.parameters,
        signature.response,
        effects_of(signature.name, signature.parameters, reads=reads, writes=writes, idempotent=idempotent),
        examples_of(signature.name, examples),
        execution.get("final", False) is not False,
        repeatable,
        title,
        read_only=read_only,
    )
    invoke = _passing_on(function) if signature.binding.takes_json else _binding(function, signature.binding)
    return Tool(spec, function, invoke, is_async=signature.is_async, check=_binding_problems(signature), **execution)


_PLAIN_KEYWORDS = frozenset(
    ("type", "properties", "required", "additionalProperties", "description", "default", "title")
)


def _is_plain(schema: Any) -> bool:
    """Whether a schema only names properties of simple types, as that of most functions does."""
    if schema is None or isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN_KEYWORDS:
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        schema.get("type") in (*_TYPES, None)
        and isinstance(properties, dict)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and all(map(_is_plain, (*properties.values(), schema.get("additionalProperties"))))
    )


def _binding_problems(signature: "Signature") -> Callable[[dict[str, Any]], Iterable[Any]]:
    def check(arguments: dict[str, Any]) -> Iterable[Any]:
        try:
            signature.bind(arguments)
        except ArgumentError as error:
            return (error,)
        return ()

    return check


def _passing_on(function: Callable[..., Any]) -> Invoke:
    return lambda arguments, _context: function(**arguments)


def _binding(function: Callable[..., Any], binding: "Binding") -> Invoke:
    def invoke(arguments: dict[str, Any], context: RunContext[Any]) -> Any:
        positional, keywords = binding(arguments, context)
        return function(*positional, **keywords)

    return invoke


def tool_from_schema(
    name: str,
    description: str,
    parameters: JsonSchema,
    callback: Callable[..., Any],
    *,
    response: JsonSchema | None = None,
    reads: Names = (),
    writes: Names = (),
    idempotent: bool = False,
    examples: Iterable[dict[str, Any]] = (),
    repeatable: bool = False,
    title: str | None = None,
    read_only: bool | None = None,
    **execution: Any,
) -> Tool[..., Any]:
    """A tool of explicit schemas; the callback gets the arguments as one dict, after the context if it takes two."""
    check_known(execution)
    check_name(name)
    if not callable(callback) or not (takes_values(callback, 1) or takes_values(callback, 2)):
        raise ConfigError(
            f"{name}: the callback is a function of the arguments, or of the context and them; not {callback!r}"
        )
    try:
        takes = _read(parameters, "parameters")
        gives = None if response is None else _read(response, "response")
    except SchemaError as error:
        raise SchemaError(f"failed to create tool {name}: {error}") from error
    effects = effects_of(name, takes, reads=reads, writes=writes, idempotent=idempotent)
    takes_context = not takes_values(callback, 1)

    def invoke(arguments: dict[str, Any], context: RunContext[Any]) -> Any:
        own = _copied(arguments)  # the callback may change it, and the conversation must not change with it
        return callback(context.user, own) if takes_context else callback(own)

    return Tool(
        ToolSpec(
            name,
            description,
            takes,
            gives,
            effects,
            examples_of(name, examples),
            execution.get("final", False) is not False,
            repeatable,
            title,
            read_only=read_only,
        ),
        callback,
        invoke,
        is_async=is_async(callback),
        **execution,
    )


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copied(item) for name, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def _read(schema: JsonSchema, word: str) -> dict[str, Any]:
    """The schema as an object, with type words of Python and others read for what they mean."""
    if not isinstance(schema, dict | str | bytes):
        raise SchemaError(f"invalid {word} schema: it is a dict, or JSON as text; not {schema!r}")
    try:
        read = schema if isinstance(schema, dict) else msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise SchemaError(f"invalid {word} schema: {error}") from error
    if not isinstance(read, dict):
        raise SchemaError(f"invalid {word} schema: it is an object, not {type(read).__name__}")
    if not _speaks_otherwise(read):
        return read
    from midspan._schema.normalize import normalize  # as above

    return normalize(read)


_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))


def _speaks_otherwise(schema: Any, depth: int = 0) -> bool:
    """Whether a type in it is a word of another language: `dict`, `float`, `STRING`."""
    if depth > 100:
        return False  # which is refused for its depth anyway
    if isinstance(schema, list):
        return any(_speaks_otherwise(item, depth + 1) for item in schema)
    if not isinstance(schema, dict):
        return False
    word = schema.get("type")
    odd = isinstance(word, str) and word not in _TYPES
    return odd or any(_speaks_otherwise(item, depth + 1) for item in schema.values())


class _ToolMethod:
    """A method that was made a tool before there is an object; `shop.price` is the tool."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        self._function = function
        self._make = make
        self.name = function.__name__
        self._is_making = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self.of(instance)

    def of(self, instance: Any) -> Any:
        """The tool of this object, the same each time where the object can keep it."""
        method = types.MethodType(self._function, instance)
        if self._is_making:  # whoever looks for its docstring looks here again
            return method
        self._is_making = True
        try:
            made = self._make(method)
        finally:
            self._is_making = False
        if not isinstance(instance, type) and hasattr(instance, "__dict__"):
            instance.__dict__[self.name] = made
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<method {self.name}, a tool with its object>"


def _is_method(function: object) -> bool:
    """Whether this is written in a class and wants what it will be called on."""
    if not isinstance(function, types.FunctionType):
        return False
    first = next(iter(inspect.signature(function, follow_wrapped=False).parameters), "")
    place = function.__qualname__.rpartition(".")[0]
    return first == "self" or (first == "cls" and bool(place) and not place.endswith("<locals>"))


def _bound(function: Any) -> Any:
    """The tool that a method is, as Python gives it: since 3.13 a classmethod leaves that to whoever takes it."""
    if isinstance(function, _ToolMethod):
        raise SchemaError(f"{function.name} is a method without its object; give the method of an object")
    method = getattr(function, "__func__", None)
    return method.of(function.__self__) if isinstance(method, _ToolMethod) else function
