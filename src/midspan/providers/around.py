"""A provider around a provider: whatever it does not change is that one's own."""

from collections.abc import AsyncGenerator

from midspan.providers.provider import Provider, Traits, closable, traits_of
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part


class Around:
    """All of a provider but `stream`, which is for the kind of it to say."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def traits(self) -> Traits:
        return traits_of(self._provider)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._provider!r})"

    def _asked(self, request: ModelRequest, *, whole: bool) -> AsyncGenerator[Part | ModelResponse, None]:
        """What the provider within says."""
        return closable(self._provider.stream(request, whole=whole))

    async def close(self) -> None:
        await self._provider.close()
