"""What a model meant by a call that it could not write down properly, where nothing of it has to be guessed."""

from collections.abc import Sequence

from msgspec.structs import replace

from midspan.types.exchange import FinishReason, ModelResponse
from midspan.types.messages import Message
from midspan.types.specs import AnyTool, ToolSpec


def salvaged(answer: ModelResponse, tools: Sequence[AnyTool]) -> ModelResponse:
    """The answer with the calls that its explanation quotes, if it was refused for how it wrote them."""
    if answer.finish is not FinishReason.MALFORMED_CALL or not answer.finish_message or answer.message.calls:
        return answer
    from midspan.providers.prompted.salvage import salvage  # most runs never need it

    calls = salvage(answer.finish_message, tuple(tool for tool in tools if isinstance(tool, ToolSpec)))
    if not calls:
        return answer
    message = Message("model", (*answer.message.parts, *calls))
    return replace(answer, message=message, finish=FinishReason.END)
