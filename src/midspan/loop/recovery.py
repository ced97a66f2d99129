"""Recovering calls that a model could not write down properly, where nothing of them has to be guessed."""

from collections.abc import Sequence

from msgspec.structs import replace

from midspan.types.exchange import FinishReason, ModelResponse
from midspan.types.specs import AnyTool, ToolSpec


def recover_malformed_call(response: ModelResponse, tools: Sequence[AnyTool]) -> ModelResponse:
    """Return the response with the calls that its `finish_message` quotes. Everything else of the turn stays."""
    if response.finish_reason is not FinishReason.MALFORMED_CALL or not response.finish_message:
        return response
    if response.message.calls:
        return response
    from midspan.providers.prompted.salvage import salvage  # most runs never need it

    calls = salvage(response.finish_message, tuple(tool for tool in tools if isinstance(tool, ToolSpec)))
    if not calls:
        return response
    message = response.message.with_parts((*response.message.parts, *calls))
    return replace(response, message=message, finish_reason=FinishReason.END)
