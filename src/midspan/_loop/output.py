"""Typed answers: how the model is asked for one, and how it is read."""

from typing import Any

from msgspec import Struct

from midspan._loop.policy import Fail, Policy, Retry, Verdict
from midspan._loop.state import RunState
from midspan._schema.dialects.adapt import adapt_schema
from midspan._schema.dialects.dialect import AdaptedSchema, SchemaDialect
from midspan._schema.output_type import OutputType, parse_json
from midspan._types.exchange import ModelResponse, Output
from midspan.errors import ArgumentError, OutputError
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool

ANSWER_TOOL = "final_answer"
_UNLIMITED_CHARS = 2**40
_MAX_QUOTED_CHARS = 200


class TypedOutput(Struct, frozen=True, eq=False):
    """The type of an answer, as one model is asked for it."""

    shape: OutputType
    lowered: AdaptedSchema
    by_tool: bool
    """The model cannot be asked for JSON while it has tools, so it answers by calling one."""

    @property
    def requested(self) -> Output | None:
        return None if self.by_tool else Output(self.lowered.schema)

    @property
    def tool_name(self) -> str:
        return ANSWER_TOOL

    @property
    def policy(self) -> "OutputPolicy":
        return OutputPolicy(self)

    def read(self, text: str) -> Any:
        """Return the value that a text holds. Raises ArgumentError if it is not of the type."""
        return self.shape.parse(self.lowered.restore_names(parse_json(text)))

    def tool(self) -> Tool[..., Any]:
        """Return the tool with which a model answers that cannot answer in JSON."""
        parameters = {"type": "object", "properties": {"answer": self.shape.schema}, "required": ["answer"]}
        if "$defs" in self.shape.schema:
            parameters["$defs"] = self.shape.schema["$defs"]
        return tool_from_schema(
            ANSWER_TOOL,
            "Give the final answer. Call this once, alone, when you know it.",
            parameters,
            self._checked,
            final=True,
            max_result_chars=_UNLIMITED_CHARS,
        )

    def _checked(self, arguments: dict[str, Any]) -> Any:
        self.shape.parse(arguments["answer"])  # the model reads what the type itself rejects
        return arguments["answer"]


class OutputPolicy(Policy):
    """Asks again for an answer that is not of the type."""

    def __init__(self, output: TypedOutput) -> None:
        self._output = output

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        if state.calls:
            return None
        text = state.partial_text + response.message.text
        try:
            self._output.read(text)
        except ArgumentError as error:
            if state.retries_exhausted:
                quoted = text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"
                failure = OutputError(f"the answer is not of the requested type: {error}; it was {quoted!r}")
                failure.__cause__ = error
                return Fail(failure)
            how = f"Call {ANSWER_TOOL} with it." if self._output.by_tool else "Answer again, with JSON only."
            return Retry(
                f"the answer is not of the requested type: {error}",
                f"That is not the form of the answer: {error}. {how}",
            )
        return None


def typed_output(shape: OutputType, dialect: SchemaDialect | None, *, by_tool: bool) -> TypedOutput:
    """Return the typed output for a model of this dialect."""
    lowered = AdaptedSchema(shape.schema) if dialect is None else adapt_schema(shape.schema, dialect, arguments=False)
    return TypedOutput(shape, lowered, by_tool)
