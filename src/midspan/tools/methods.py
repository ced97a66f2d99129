"""Methods as tools: what is decorated in a class becomes a tool with each object, or with the class, that it is of."""

import inspect
import types
from collections.abc import Callable
from typing import Any

from midspan.errors import SchemaError


class ToolMethod:
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


def is_method(function: object) -> bool:
    """Whether this is written in a class and wants what it will be called on."""
    if not isinstance(function, types.FunctionType):
        return False
    first = next(iter(inspect.signature(function, follow_wrapped=False).parameters), "")
    place = function.__qualname__.rpartition(".")[0]
    return first == "self" or (first == "cls" and bool(place) and not place.endswith("<locals>"))


def with_its_object(function: Any) -> Any:
    """The tool that a method is, as Python gives it: since 3.13 a classmethod leaves that to whoever takes it."""
    if isinstance(function, ToolMethod):
        raise SchemaError(f"{function.name} is a method without its object; give the method of an object")
    method = getattr(function, "__func__", None)
    return method.of(function.__self__) if isinstance(method, ToolMethod) else function
