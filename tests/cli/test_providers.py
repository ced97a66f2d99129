"""The terminal with models of other providers, against loopback services."""

from pathlib import Path

import pytest

from tests.cli.terminal import midspan
from tests.gemini.recorder import recorder
from tests.providers.services import AnthropicService, ChatService, ResponsesService, Service, Turn

CALL = (("call_a", "calculate", '{"expression": "2 + 3"}'),)
CASES: list[tuple[str, type[Service], dict[str, str], str]] = [
    ("anthropic:claude-sonnet-5-5", AnthropicService, {"ANTHROPIC_API_KEY": "k"}, "ANTHROPIC_BASE_URL"),
    ("claude-sonnet-5-5", AnthropicService, {"ANTHROPIC_API_KEY": "k"}, "ANTHROPIC_BASE_URL"),
    ("openai:gpt-5.5", ChatService, {"OPENAI_API_KEY": "k"}, "OPENAI_BASE_URL"),
    ("openai-responses:gpt-5.5", ResponsesService, {"OPENAI_API_KEY": "k"}, "OPENAI_BASE_URL"),
    ("ollama:qwen3", ChatService, {}, "OLLAMA_HOST"),
]


@pytest.mark.parametrize(("model", "make_service", "environment", "variable"), CASES)
def test_ask_calls_a_tool_and_prints_the_answer(
    model: str, make_service: type[Service], environment: dict[str, str], variable: str, tmp_path: Path
) -> None:
    with recorder(make_service(Turn("", CALL), Turn("It is 5."))) as service:
        url = f"{service.url}/v1" if variable == "OLLAMA_HOST" else service.url
        ended = midspan("ask", "-m", model, "2 + 3?", home=tmp_path, **environment, **{variable: url})
    assert (ended.code, ended.out) == (0, "It is 5.\n"), ended.err
    assert service.refused == []  # type: ignore[attr-defined]


def test_missing_key_names_the_variable(tmp_path: Path) -> None:
    ended = midspan("ask", "-m", "anthropic:claude-sonnet-5-5", "hi", home=tmp_path)
    assert ended.code != 0
    assert "no Anthropic API key: set ANTHROPIC_API_KEY" in ended.err
    assert "Traceback" not in ended.err


def test_unknown_model_names_the_providers(tmp_path: Path) -> None:
    ended = midspan("ask", "-m", "nonsense-1", "hi", home=tmp_path)
    assert ended.code == 2
    assert "unknown model 'nonsense-1'" in ended.err
    assert "anthropic, azure" in ended.err.replace("\n", " ")


def test_models_and_doctor_use_the_providers_that_have_keys(tmp_path: Path) -> None:
    with recorder(AnthropicService(Turn("never"))) as service:
        environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": service.url}
        assert midspan("models", home=tmp_path, **environment).out.splitlines()[:2] == [
            "anthropic:model-1",
            "anthropic:model-2",
        ]
        assert "Anthropic accepts the key" in midspan("doctor", home=tmp_path, **environment).out


def test_doctor_reports_servers_that_do_not_run_without_waiting(tmp_path: Path) -> None:
    """Each request would otherwise be repeated until the time of the check is over."""
    variables = ("OLLAMA_HOST", "LOCALAI_BASE_URL", "VLLM_BASE_URL", "LLAMACPP_BASE_URL")
    ended = midspan("doctor", home=tmp_path, **dict.fromkeys(variables, "http://127.0.0.1:9"))
    assert ended.code == 1
    assert ended.out.count("cannot connect to 127.0.0.1:9") == len(variables)
    assert "did not respond" not in ended.out
