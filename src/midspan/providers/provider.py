"""The protocol between a run and a model.

Above is the loop, which sends requests; below is the service of a model, a script or a recording. A provider knows
the declarations of tools but cannot call them, and it knows the history of a conversation but not its run.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Optional, Protocol, Self, TypeVar, runtime_checkable

from msgspec import Struct

from midspan._types.exchange import Budget, ModelEvent, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from midspan._schema.dialect import SchemaDialect

T = TypeVar("T")
_MAX_REQUESTS = 100
"""For one response."""


class ModelProfile(Struct, frozen=True, eq=False):
    """What a run must know about a model before it sends a request. The defaults describe a model without quirks."""

    service: str = "Model"
    """The name of the service in messages, logs and metrics."""
    schema: Optional["SchemaDialect"] = None
    """Which names and schemas the model accepts. None: both are sent as they are."""
    output_schema: Optional["SchemaDialect"] = None
    """Which schemas it accepts for its answers, if they differ from those of tools."""
    output_is_object: bool = False
    """Answers in JSON must be objects; for other values the model answers by calling a tool."""
    output_is_strict: bool = False
    """Answers must have a schema of the strict form; for other schemas the model answers by calling a tool."""
    supports_tools: bool = True
    """Accepts tool declarations and makes calls. Otherwise tools are described in the prompt (prompt mode)."""
    supports_prompted_tools: bool = True
    """Can use tools that are described in the prompt."""
    supports_json_with_tools: bool = True
    """Can be asked for JSON of a schema while tools are declared."""
    calls_in_order: bool = False
    """A call may depend on an earlier call of the same turn, so they run one after another."""


@runtime_checkable
class Provider(Protocol):
    """A model. See docs/how-to/write-a-provider.md."""

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def profile(self) -> ModelProfile:
        """What the model can do."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts of the response as they arrive, and the whole response last."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""

    async def aclose(self) -> None:
        """Close connections."""


class WireRequest(Struct, frozen=True):
    """A request as it is sent to the service."""

    path: str
    body: bytes


def may_continue(response: ModelResponse, budget: Budget) -> bool:
    """Whether another request may be sent for a response that the model has paused."""
    requests = _MAX_REQUESTS if budget.max_requests is None else min(budget.max_requests, _MAX_REQUESTS)
    return response.requests < requests and (budget.max_tokens is None or response.usage.total < budget.max_tokens)


class ClosedOnExit:
    """Adds `async with`, which closes the object, to a class with `aclose`."""

    async def aclose(self) -> None:
        """Close connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class WrapperProvider(ClosedOnExit):
    """A provider around a provider. Override `stream` together with `generate`."""

    def __init__(self, provider: Provider) -> None:
        self.wrapped = provider

    @property
    def model(self) -> str:
        return self.wrapped.model

    @property
    def profile(self) -> ModelProfile:
        return self.wrapped.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self.wrapped.stream(request)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return await self.wrapped.generate(request)

    async def aclose(self) -> None:
        await self.wrapped.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wrapped!r})"


def ensure_aclose(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Return an iterator with `aclose`, which not every async iterator has."""
    return items if isinstance(items, AsyncGenerator) else _closable(items)


async def _closable(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    try:
        async for item in items:
            yield item
    finally:
        close: Any = getattr(items, "aclose", None)
        if close is not None:
            await close()
