"""The type of a run's answer: what the model is asked for, and another request if its answer does not fit."""

from typing import TYPE_CHECKING, Any

from midspan._loop.policies import Policy, Retry
from midspan._types.exchange import ModelResponse, Output
from midspan._types.run_state import RunState
from midspan._types.texts import truncate
from midspan.errors import ArgumentError, OutputError
from midspan.providers.provider import ModelProfile

if TYPE_CHECKING:
    from midspan._schema.dialect import AdaptedSchema
    from midspan._schema.output_type import OutputType

ANSWER_TOOL = "final_answer"
_UNLIMITED_CHARS = 2**40
_MAX_QUOTED_CHARS = 200


def typed_output(output: "OutputType | None", profile: ModelProfile, *, has_tools: bool) -> "TypedOutput | None":
    """Return an output type as it is requested from a model; None for text."""
    if output is None:
        return None
    from midspan._schema.adapt import adapt_schema  # loaded for typed answers
    from midspan._schema.dialect import AdaptedSchema

    dialect = profile.output_schema or profile.schema
    schema = AdaptedSchema(output.schema) if dialect is None else adapt_schema(output.schema, dialect, arguments=False)
    is_accepted = not profile.output_is_object or schema.schema.get("type") == "object"
    is_accepted = is_accepted and (not profile.output_is_strict or schema.strict)
    return TypedOutput(output, schema, by_tool=(has_tools and not profile.supports_json_with_tools) or not is_accepted)


class TypedOutput(Policy):
    """The output type of a run, adapted to one model. Asks again if an answer is not of the type."""

    def __init__(self, output_type: "OutputType", schema: "AdaptedSchema", *, by_tool: bool) -> None:
        """`by_tool`: the model cannot be asked for JSON while it has tools, so it answers by calling one."""
        self.type, self.schema, self.by_tool = output_type, schema, by_tool
        self.requested = None if by_tool else Output(schema.schema, schema.strict)

    def read(self, text: str) -> Any:
        """Return the value that a text holds. Raises ArgumentError if it is not of the type."""
        from midspan._schema.output_type import parse_json_answer  # loaded for typed answers

        return self.type.parse(self.schema.restore_names(parse_json_answer(text)))

    def after_response(self, state: RunState, response: ModelResponse) -> Retry | None:
        if state.calls:
            return None
        text = state.partial_text + response.message.text
        try:
            self.read(text)
        except ArgumentError as error:
            reason = f"the answer is not of the requested type: {error}"
            if state.retries_exhausted:
                raise OutputError(f"{reason}; it was {truncate(text, _MAX_QUOTED_CHARS)!r}") from error
            hint = f"Call {ANSWER_TOOL} with it." if self.by_tool else "Answer again, with JSON only."
            return Retry(reason, f"Your answer does not have the requested form: {error}. {hint}")
        return None

    def tool(self) -> Any:
        """Return the tool that a model calls to answer, if it cannot be asked for JSON."""
        from midspan.tools.declared import tool_from_schema  # loaded for typed answers

        schema = self.type.schema
        parameters = {"type": "object", "properties": {"answer": schema}, "required": ["answer"]}
        return tool_from_schema(
            ANSWER_TOOL,
            "Give the final answer. Call this once, alone, when you know it.",
            parameters | ({"$defs": schema["$defs"]} if "$defs" in schema else {}),
            self._check,
            final=True,
            max_result_chars=_UNLIMITED_CHARS,
        )

    def _check(self, arguments: dict[str, Any]) -> Any:
        self.type.parse(arguments["answer"])  # raises ArgumentError, which becomes an error result
        return arguments["answer"]
