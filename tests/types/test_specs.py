from typing import Any

import pytest

from midspan._types.specs import ModelSettings, ToolChoice
from midspan.errors import ConfigError


@pytest.mark.requirement("S1-10")
@pytest.mark.parametrize(
    ("spelling", "choice"),
    [
        ("optional", ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("AUTO", ToolChoice("auto")),
        ({"type": "optional"}, ToolChoice("auto")),
        ("required_any", ToolChoice("any")),
        ("any", ToolChoice("any")),
        ("none", ToolChoice("none")),
        ("validated", ToolChoice("auto", strict=True)),
        ({"type": "required", "tool": "add"}, ToolChoice("any", ("add",))),
        ({"mode": "FUNCTION", "name": "add"}, ToolChoice("any", ("add",))),
        ({"type": "any", "names": ["add", "sub"]}, ToolChoice("any", ("add", "sub"))),
        (ToolChoice("any"), ToolChoice("any")),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("any", ("f",))),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("any", ("f",))),
    ],
)
def test_a_tool_choice_is_understood_in_every_spelling(spelling: Any, choice: ToolChoice) -> None:
    assert ToolChoice.of(spelling) == choice


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("sometimes", "unknown tool choice 'sometimes'; known: auto, optional"),
        ({}, "unknown tool choice"),
        (None, "unknown tool choice None"),
        ({"type": "required", "tool": 5}, "names something that is no name"),
        ("required", "needs the name of a tool"),
        ("function", "needs the name of a tool"),
        ({"type": "none", "tool": "add"}, "takes no tool, got add"),
    ],
)
def test_a_tool_choice_that_says_nothing_usable_is_refused(spelling: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ToolChoice.of(spelling)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"stop": "END"}, "stop is a list of texts, not 'END'"),
        ({"stop": [5]}, "stop is a list of texts"),
        ({"thinking": "wild"}, "thinking is minimal, low, medium, high or a number of tokens, not 'wild'"),
        ({"thinking": True}, "thinking is a level or a number"),
        ({"extra": 5}, "extra is a dict"),
        ({"temperature": "x"}, "temperature is a number, not 'x'"),
        ({"seed": "a"}, "seed is a whole number"),
        ({"max_tokens": 2.5}, "max_tokens is a whole number, not 2.5"),
        ({"top_k": True}, "top_k is a whole number"),
        ({"show_thoughts": "x"}, "show_thoughts is True or False"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_told_where_it_is_given(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelSettings(**wrong)


def test_texts_to_stop_at_may_be_a_list() -> None:
    assert ModelSettings(stop=["a", "b"]) == ModelSettings(stop=("a", "b"))  # type: ignore[arg-type]
