"""The seam between the server and whoever answers.

Above is the server, which has checked the request and frames the answer; below is a script, a model or a recording.
A source knows nothing of HTTP, of faults or of how an answer is cut into chunks.
"""

from collections.abc import Awaitable
from typing import Protocol

from midspan.emulator.answering.answer import Answer
from midspan.emulator.sources.conversation import Conversation


class Source(Protocol):
    """Somebody who answers."""

    def answer(self, conversation: Conversation) -> Answer | Awaitable[Answer]:
        """What is said next in this conversation."""


class Echo:
    """Says again what was said last; it answers where nothing else was given."""

    def answer(self, conversation: Conversation) -> Answer:
        if conversation.results:
            return Answer(parts=({"text": f"Results came from {', '.join(conversation.results)}."},))
        return Answer(parts=({"text": f"You said: {conversation.last_text}"},))
