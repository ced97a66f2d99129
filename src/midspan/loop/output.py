"""A typed answer: how the model is asked for it, and how it is read."""

from typing import Any

from msgspec import Struct

from midspan.errors import ArgumentError, OutputError
from midspan.loop.state import RunState
from midspan.loop.stop import Again
from midspan.schema.dialects import Dialect, Lowered, lower
from midspan.schema.shape import Shape, json_in
from midspan.tools.function import Tool, tool_from_schema
from midspan.types.exchange import Output

ANSWER_TOOL = "final_answer"


class TypedOutput(Struct, frozen=True, eq=False):
    """The form of an answer, in the words of one model."""

    shape: Shape
    lowered: Lowered
    by_tool: bool
    """The model cannot be asked for JSON and be given tools at once, so that it answers by calling one."""

    @property
    def asked(self) -> Output | None:
        return None if self.by_tool else Output(self.lowered.schema)

    def read(self, text: str) -> Any:
        """What an answer says; an ArgumentError if it is something else."""
        return self.shape.made(self.lowered.original(json_in(text)))

    def unread(self, text: str, state: RunState) -> Again | None:
        """Why an answer is not what was asked for, to be told to the model; None if it is; raises if told in vain."""
        try:
            self.read(text)
        except ArgumentError as error:
            if state.has_missed_enough:
                said = text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"
                raise OutputError(f"the answer is not what was asked for: {error}; it was {said!r}") from error
            how = f"Call {ANSWER_TOOL} with it." if self.by_tool else "Say it again, as JSON alone."
            words = f"That is not the form of the answer: {error}. {how}"
            return Again(f"the answer does not have the form: {error}", words)
        return None

    def _checked(self, arguments: dict[str, Any]) -> Any:
        self.shape.made(arguments["answer"])  # what the type itself refuses is told to the model, too
        return arguments["answer"]

    def tool(self) -> Tool[..., Any]:
        """The tool that a model answers with, where it cannot answer in JSON."""
        return tool_from_schema(
            ANSWER_TOOL,
            "Give the final answer. Call this once, alone, when you know it.",
            {"type": "object", "properties": {"answer": self.shape.schema}, "required": ["answer"]}
            | ({"$defs": self.shape.schema["$defs"]} if "$defs" in self.shape.schema else {}),
            self._checked,
            final=True,
            max_result_chars=_NEVER_CUT,
        )


_NEVER_CUT = 2**40
_MOST_QUOTED = 200


def typed_output(shape: Shape, dialect: Dialect | None, *, by_tool: bool) -> TypedOutput:
    """The output that the caller wants."""
    lowered = Lowered(shape.schema) if dialect is None else lower(shape.schema, dialect, arguments=False)
    return TypedOutput(shape, lowered, by_tool)
