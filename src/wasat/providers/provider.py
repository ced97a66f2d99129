"""The seam between a run and a model.

Above is the loop, which asks; below is a model's service, a script or a recording. A provider knows nothing of tools
beyond their declarations, and nothing of turns beyond the history it is given.
"""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from wasat.types.exchange import ModelRequest, ModelResponse
from wasat.types.parts import Part


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
