"""An answer that takes several requests: the model says that it goes on, and is asked the same with its token.

https://ai.google.dev/gemini-api/docs/long-decode
"""

from collections.abc import Sequence

from msgspec import Raw
from msgspec.structs import replace

from midspan.providers.gemini.reading import DIALECT, encode_json, fields_of, raw_parts
from midspan.types.exchange import FinishReason, ModelResponse, Room, Usage
from midspan.types.messages import Message

_MOST_REQUESTS = 100


def next_token(answers: Sequence[ModelResponse], room: Room) -> str | None:
    """The token with which to ask for more; None if the answer is whole, or may not or does not get any further."""
    last = answers[-1]
    if last.finish is not FinishReason.CONTINUES or len(answers) >= _MOST_REQUESTS or not _has_room(answers, room):
        return None
    stuck = len(answers) > 1 and answers[-2].continuation == last.continuation
    return None if stuck else last.continuation


def _has_room(answers: Sequence[ModelResponse], room: Room) -> bool:
    if room.requests is not None and len(answers) >= room.requests:
        return False
    return room.tokens is None or sum(answer.usage.total for answer in answers) < room.tokens


def joined(answers: Sequence[ModelResponse]) -> ModelResponse:
    """Several answers as the one that they are: all parts in one turn, all tokens counted."""
    last = answers[-1]
    if len(answers) == 1:
        return last
    messages = [answer.message for answer in answers if answer.message.parts and answer.message.raw]
    message = last.message
    if messages:
        content = {name: value for one in messages for name, value in fields_of(one.raw).items()}
        content["parts"] = Raw(b"[%b]" % b",".join(raw for one in messages for raw in raw_parts(one.raw)))
        parts = tuple(part for one in messages for part in one.parts)
        message = Message("model", parts, DIALECT, Raw(encode_json(content)))
    usage = sum((answer.usage for answer in answers), Usage())
    # A model that said it would go on, and then says nothing, did not come to its end.
    finish = last.finish if last.message.parts or last.finish is not FinishReason.END else FinishReason.CUT
    raw = tuple(raw for answer in answers for raw in answer.raw)
    return replace(last, message=message, finish=finish, usage=usage, raw=raw, requests=len(answers))
