import math
from typing import Any

import pytest

from midspan._types.specs import Effects, Limits, ModelSettings, ToolChoice, ToolSpec, unknown_tool
from midspan.errors import ConfigError


@pytest.mark.requirement("S1-10")
@pytest.mark.parametrize(
    ("spelling", "choice"),
    [
        ("optional", ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("AUTO", ToolChoice("auto")),
        ({"type": "optional"}, ToolChoice("auto")),
        ("required", ToolChoice("required")),
        ("required_any", ToolChoice("required")),
        ("add", ToolChoice("required", ("add",))),
        ({"type": "tool", "name": "add"}, ToolChoice("required", ("add",))),
        ("any", ToolChoice("required")),
        ("none", ToolChoice("none")),
        ("validated", ToolChoice("auto", strict=True)),
        ({"type": "required", "tool": "add"}, ToolChoice("required", ("add",))),
        ({"type": "required"}, ToolChoice("auto")),
        ({"mode": "FUNCTION", "name": "add"}, ToolChoice("required", ("add",))),
        ({"type": "any", "names": ["add", "sub"]}, ToolChoice("required", ("add", "sub"))),
        (ToolChoice("required"), ToolChoice("required")),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("required", ("f",))),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("required", ("f",))),
        ({"type": None, "mode": "any"}, ToolChoice("required")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", parallel=False)),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto")),
    ],
)
def test_tool_choice_is_understood_in_every_spelling(spelling: Any, choice: ToolChoice) -> None:
    assert ToolChoice.of(spelling) == choice


@pytest.mark.requirement("S1-20")
def test_required_choice_without_a_tool_is_the_default_choice() -> None:
    assert ToolChoice.of({"type": "required"}) == ToolChoice.of("optional")


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ({"type": "sometimes"}, "unknown tool choice .*; use 'auto', 'required', 'none' or a tool's name"),
        ({}, "unknown tool choice"),
        ({"type": "function"}, "unknown tool choice"),
        ({"type": None}, "unknown tool choice"),
        ({"type": "function", "function": None}, "unknown tool choice"),
        ({"type": "function", "function": {"name": 5}}, "unknown tool choice"),
        ({"mode": "ANY", "allowedFunctionNames": "search"}, "unknown tool choice"),
        ({"mode": "ANY", "allowedFunctionNames": 5}, "unknown tool choice"),
    ],
)
def test_invalid_tool_choice_is_an_error(spelling: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ToolChoice.of(spelling)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stop": "END"}, r"settings: Expected `array`, got `str` - at `\$.stop`"),
        ({"stop": [5]}, r"settings: Expected `str`, got `int` - at `\$.stop\[0\]`"),
        ({"thinking": "wild"}, r"^settings: Invalid enum value 'wild' - at `\$.thinking`$"),
        ({"thinking": True}, "at `.*thinking`"),
        ({"extra": 5}, "at `.*extra`"),
        ({"temperature": "x"}, "at `.*temperature`"),
        ({"seed": "a"}, "at `.*seed`"),
        ({"max_tokens": 2.5}, "at `.*max_tokens`"),
        ({"top_k": True}, "at `.*top_k`"),
        ({"show_thoughts": "x"}, "at `.*show_thoughts`"),
    ],
)
def test_invalid_setting_is_an_error_that_names_it(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelSettings.of(wrong)
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ModelSettings.of(ModelSettings(**wrong))


def test_stop_may_be_a_list() -> None:
    assert ModelSettings.of({"stop": ["a", "b"]}) == ModelSettings(stop=("a", "b"))


OPENAI = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True},
}
MCP = {
    "name": "add",
    "title": "Addition",
    "description": "Adds.",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "integer"},
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False},
}


@pytest.mark.requirement("S2-21")
@pytest.mark.parametrize(
    ("declaration", "spec"),
    [
        (OPENAI, ToolSpec("add", "Adds.", {"type": "object"}, strict=True)),
        ({"type": "function", "name": "add", "parameters": {}}, ToolSpec("add", "", {})),
        ({"name": "add", "input_schema": {"type": "object"}}, ToolSpec("add", "", {"type": "object"})),
        ({"name": "add", "description": "Adds."}, ToolSpec("add", "Adds.")),
        (
            MCP,
            ToolSpec(
                "add",
                "Adds.",
                {"type": "object"},
                {"type": "integer"},
                Effects(idempotent=True),
                title="Addition",
                read_only=True,
                destructive=False,
                open_world=False,
            ),
        ),
        (ToolSpec("add"), ToolSpec("add")),
    ],
)
def test_tool_can_be_declared_as_other_apis_write_it(declaration: Any, spec: ToolSpec) -> None:
    assert ToolSpec.of(declaration) == spec


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"description": "Adds."}, "a declaration needs a name"),
        ({"type": "function", "function": {}}, "a declaration needs a name"),
        ({"name": "add", "annotations": {"readOnlyHint": "false"}}, "add: annotations: Expected `bool | null`"),
        ({"name": "add", "annotations": "safe"}, "add: annotations: Expected `object`, got `str`"),
        ({"name": "add", "schema": {}}, "add: the declaration has 'schema', but none of: parameters, inputSchema"),
    ],
)
def test_invalid_declaration_is_an_error(declaration: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ToolSpec.of(declaration)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("health", "unknown tool: health; did you mean health_check? The tools are: health_check, delete, create"),
        ("heal", "unknown tool: heal; the tools are: health_check, delete, create"),
        (
            "tools.delete",
            "unknown tool: tools.delete; did you mean delete? The tools are: health_check, delete, create",
        ),
    ],
)
def test_unknown_tool_is_reported_with_the_one_name_that_is_close(name: str, message: str) -> None:
    assert unknown_tool(name, ["health_check", "delete", "create"]) == message


@pytest.mark.parametrize("namespace", ["default_api.", "default_api:", "functions.", "tools."])
def test_name_within_a_namespace_of_a_model_is_suggested_without_it(namespace: str) -> None:
    message = unknown_tool(f"{namespace}add", ["add", "sub"])
    assert message == f"unknown tool: {namespace}add; did you mean add? The tools are: add, sub"


def test_only_the_best_of_several_close_names_is_suggested() -> None:
    tools = ["cloudgenie_delete_resource", "cloudgenie_create_resource", "cloudgenie_health_check"]
    assert "did you mean cloudgenie_health_check? The tools" in unknown_tool("cloudgenie_health", tools)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be a positive int or None, got 0"),
        ({"temperature": math.nan}, "temperature must be a finite number, got nan"),
        ({"frequency_penalty": -math.inf}, "frequency_penalty must be a finite number, got -inf"),
    ],
)
def test_settings_that_no_service_accepts_are_an_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelSettings(**settings)
    with pytest.raises(ConfigError, match=words):
        ModelSettings.of(settings)


def test_setting_of_the_wrong_type_is_an_error() -> None:
    with pytest.raises(ConfigError, match="temperature must be a finite number, got 'hot'"):
        ModelSettings(temperature="hot")  # type: ignore[arg-type]


def test_settings_and_limits_may_be_omitted_or_objects() -> None:
    settings, limits = ModelSettings(max_tokens=1), Limits(max_turns=1)
    assert (ModelSettings.of(settings), Limits.of(limits)) == (settings, limits)
    assert (ModelSettings.of({"max_tokens": 1}), Limits.of({"max_turns": 1})) == (settings, limits)
    assert (ModelSettings.of(None), Limits.of(None)) == (ModelSettings(), Limits())


@pytest.mark.parametrize(
    "limits",
    [
        {"max_turns": 0},
        {"max_turns": 1.5},
        {"max_calls_per_tool": 0.5},
        {"max_tokens": "many"},
        {"max_calls_per_tool": {"add": 0}},
        {"max_calls_per_tool": {"add": 1.5}},
        {"on_limit": "stop"},
        {"turns": 1},
    ],
)
def test_invalid_limit_is_an_error(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits.of(limits)


def test_time_limit_may_be_a_fraction_of_a_second() -> None:
    assert Limits(max_seconds=0.5) == Limits.of({"max_seconds": 0.5})


def test_limits_may_differ_by_tool() -> None:
    assert Limits(max_calls_per_tool={"add": 1}).max_calls_per_tool == {"add": 1}


@pytest.mark.parametrize(
    ("spec", "changes", "safe_to_retry"),
    [
        (ToolSpec("f"), None, False),
        (ToolSpec("f", read_only=True), False, True),
        (ToolSpec("f", read_only=False), True, False),
        (ToolSpec("f", read_only=True, destructive=True), False, True),
        (ToolSpec("f", destructive=True), True, False),
        (ToolSpec("f", destructive=False), None, False),
        (ToolSpec("f", effects=Effects(reads=("a",))), False, True),
        (ToolSpec("f", effects=Effects(writes=("a",))), True, False),
        (ToolSpec("f", effects=Effects(writes=("a",), idempotent=True)), True, True),
        (ToolSpec("f", effects=Effects(idempotent=True)), None, True),
        (ToolSpec("f", effects=Effects(reads=("a",), idempotent=True)), False, True),
    ],
)
def test_what_a_tool_changes_follows_from_its_declaration(
    spec: ToolSpec, changes: bool | None, safe_to_retry: bool
) -> None:
    assert (spec.changes, spec.safe_to_retry) == (changes, safe_to_retry)
