"""Questions of tools as the forms that MCP clients show to their users (elicitation)."""

from typing import Any

import mcp_types
from msgspec import Struct

from midspan._schema.arguments import SchemaValidator
from midspan.errors import ToolError
from midspan.tools.source import bulleted

_ANSWER = "answer"
"""The field of a form that asks for a single value."""
_PRIMITIVES = ("string", "number", "integer", "boolean")
_ROOT_KEYS = ("$schema", "type", "properties", "required")
_REASONS = {"decline": "the user declined to answer", "cancel": "the user dismissed the question"}


class QuestionForm(Struct, frozen=True):
    """A form for one question: a flat object of texts, numbers, yes or no, and choices; MCP has no other forms."""

    schema: dict[str, Any]
    is_single: bool
    """Whether the tool asked for a single value, and not for an object."""
    validator: SchemaValidator

    @classmethod
    def of(cls, schema: dict[str, Any] | None) -> "QuestionForm":
        """Return the form for answers of this JSON Schema; None means any text."""
        wanted = {"type": "string"} if schema is None else schema
        is_single = wanted.get("type") != "object"
        if is_single:
            form = {"type": "object", "properties": {_ANSWER: wanted}, "required": [_ANSWER]}
        else:
            form = {key: wanted[key] for key in _ROOT_KEYS if key in wanted}
        fields = form.get("properties")
        if not isinstance(fields, dict) or not fields or not all(map(_is_field, fields.values())):
            raise ToolError(
                "this question cannot be asked through MCP: an answer can be a text, a number, a boolean, a choice, or "
                "an object of these"
            )
        return cls(form, is_single, SchemaValidator(form, label="question"))

    def request(self, message: str) -> mcp_types.ElicitRequest:
        params = mcp_types.ElicitRequestFormParams(message=message, requested_schema=self.schema)
        return mcp_types.ElicitRequest(params=params)

    def read(self, result: mcp_types.ElicitResult) -> tuple[Any, str | None]:
        """Return the answer, or what is wrong with it. Raises ToolError if the user did not answer."""
        if result.action != "accept":
            raise ToolError(_REASONS.get(result.action, "the user did not answer"))
        validated = self.validator.validate(dict(result.content or {}))
        if validated.problems:
            return None, f"The answer does not have the requested form:{bulleted(map(str, validated.problems))}"
        return validated.arguments[_ANSWER] if self.is_single else validated.arguments, None


def _is_field(schema: Any) -> bool:
    if not isinstance(schema, dict) or "$ref" in schema:
        return False
    if schema.get("type") == "array":  # several of a list of choices
        items = schema.get("items")
        return isinstance(items, dict) and ("enum" in items or "anyOf" in items)
    return schema.get("type") in _PRIMITIVES


def can_ask(capabilities: mcp_types.ClientCapabilities | None) -> bool:
    """Whether the client shows forms to its user."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
