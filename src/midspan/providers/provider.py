"""The seam between a run and a model.

Above is the loop, which asks; below is a model's service, a script or a recording. A provider knows nothing of tools
beyond their declarations, and nothing of turns beyond the history it is given.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part

if TYPE_CHECKING:
    from midspan.schema.dialects import Dialect


T = TypeVar("T")


@runtime_checkable
class Provider(Protocol):
    """A model."""

    @property
    def model(self) -> str:
        """What it is called."""

    def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, at the end the answer itself.

        With `whole` nobody is listening: only the answer comes, by whatever way is cheaper.
        """

    async def close(self) -> None:
        """Let go of what is open."""


class Traits(Struct, frozen=True):
    """What a run must know of a model before it asks; a provider that differs from the rule has them as `traits`."""

    family: str = "Model"
    """Whose it is, for the log."""
    functions: bool = True
    """Takes declarations of tools and makes calls; otherwise both have to be written into the prompt."""
    dialect: Optional["Dialect"] = None
    """How it wants schemas and names to be; None takes them as they are."""
    json_with_functions: bool = True
    """Answers in JSON of a given schema where tools are declared too."""
    calls_in_order: bool = False
    """One call of its turn may need what an earlier one did."""
    prompts: bool = True
    """Understands a prompt well enough to find tools in it."""


def traits_of(provider: Provider) -> Traits:
    return getattr(provider, "traits", _PLAIN)


_PLAIN = Traits()


def closable(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """What a provider says, as something that can be closed; not every iterator can."""
    if isinstance(items, AsyncGenerator):
        return items
    if isinstance(items, Coroutine):
        items.close()
        raise TypeError("its stream is a coroutine and no iterator; it has no yield, or is to be awaited first")
    return _closable(items)


async def _closable(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    try:
        async for item in items:
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


Respond = Callable[[ModelRequest], Coroutine[Any, Any, ModelResponse]]


def responder(provider: Provider) -> Respond | None:
    """`respond`, where a provider has such a way to a whole answer: it is the same, without the stream around it.

    Whoever makes a provider of another one, and speaks otherwise, has his own `stream` and is not passed by.
    """
    for kind in type(provider).__mro__:
        if "respond" in vars(kind) and "stream" not in getattr(provider, "__dict__", ()):
            respond: Respond = provider.respond  # type: ignore[attr-defined]  # of this kind it has one
            return respond if iscoroutinefunction(respond) else None
        if "stream" in vars(kind):
            return None
    return None
