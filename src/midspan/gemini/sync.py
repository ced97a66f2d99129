"""The rule by which the classes for plain code follow the async ones: same methods, same arguments."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from midspan._loop.blocking import run_blocking
from midspan.providers.provider import ClosedOnExit

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AnyClosable = TypeVar("AnyClosable", bound=ClosedOnExit)


def sync(method: Callable[Concatenate[A, P], R], wait: Callable[[R], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls the one of `self.aio`, and `wait` with what that returns, as `run_blocking`."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wait(method(self.aio, *args, **kwargs))

    return call


class Closing(Generic[AnyClosable]):
    """Can be used in a `with` block, which closes the async object."""

    def __init__(self, aio: AnyClosable) -> None:
        self.aio = aio

    def close(self) -> None:
        run_blocking(self.aio.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
