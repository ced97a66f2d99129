"""A provider outside the package, as docs/how-to/write-a-provider.md shows it, with every feature of Midspan."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, providers, tool
from midspan._types.events import TextDelta, ThoughtDelta
from midspan._types.exchange import FinishReason
from midspan.errors import ConfigError
from midspan.providers.registry import default_family, family_names, provider_of
from midspan.testing import ScriptedProvider, record, replay
from tests.cli.terminal import midspan
from tests.gemini.recorder import recorder
from tests.providers import parrot
from tests.providers.parrot import Service, call, done, text, thought

LOOP = (
    [*thought("Add them.", "c2ln"), *call("add", '{"a": 1,', ' "b": 2}', at=1), done()],
    [*text("It ", "is 3."), done()],
)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the provider is installed."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARROT_API_KEY", "polly")
    folder = tmp_path / "site"
    folder.mkdir()
    with parrot.installed(folder):
        yield folder


def asked(service: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PARROT_URL", service.url)
    return Agent("parrot-green", tools=[add])


def test_provider_has_at_most_sixty_lines() -> None:
    assert sum(1 for line in parrot.source().splitlines() if line.strip()) <= 60


def test_family_is_found_by_its_name_and_by_the_prefix_of_a_model(plugin: Path) -> None:
    assert "parrot" in family_names()
    assert provider_of("parrot:any-name").model == "any-name"
    assert provider_of("parrot-blue").model == "parrot-blue"
    assert provider_of("parrot").model == "parrot-green"
    with pytest.raises(ConfigError, match=r"unknown provider 'budgie'; known providers: .*, parrot"):
        provider_of("budgie:x")


def test_family_without_a_default_model_needs_the_name_of_a_model(plugin: Path) -> None:
    entry = plugin / "midspan_parrot-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[midspan.providers]\nbudgie = midspan_budgie:FAMILY\n")
    (plugin / "midspan_budgie.py").write_text(
        "from midspan.providers import ProviderFamily\n"
        "from midspan.testing import ScriptedProvider\n"
        "FAMILY = ProviderFamily(name='budgie', make=lambda model: ScriptedProvider([model]))\n"
    )
    assert isinstance(provider_of("budgie:blue"), ScriptedProvider)
    for name in ("budgie", "budgie:"):
        with pytest.raises(ConfigError, match="'budgie' needs a model name after the colon"):
            provider_of(name)


def test_configured_family_is_the_default(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = default_family()
    assert family is not None
    assert family.name == "parrot"
    monkeypatch.setenv("PARROT_API_KEY", "  ")
    assert default_family() is None


def test_entry_point_that_is_not_a_family_is_an_error(plugin: Path) -> None:
    entry = plugin / "midspan_parrot-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[midspan.providers]\nparrot = midspan_parrot:Parrot\n")
    with pytest.raises(ConfigError, match="the entry point 'parrot' must load a ProviderFamily"):
        provider_of("parrot:x")
    entry.write_text("[midspan.providers]\nparrot = no_such_module:FAMILY\n")
    with pytest.raises(ConfigError, match=r"'parrot' cannot be loaded from no_such_module:FAMILY"):
        provider_of("parrot:x")


@pytest.mark.requirement("P-01")
def test_run_executes_calls_and_sends_reasoning_back(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder(service := Service(*LOOP)):
        result = asked(service, monkeypatch).run_sync("1 + 2?")
    assert (result.text, [run.value for run in result.tool_calls]) == ("It is 3.", [3])
    assert (result.usage.input, result.usage.total) == (40, 58)
    assert service.last.headers["authorization"] == "Bearer polly"
    sent = service.last.body["turns"][1]["parts"]
    assert sent[0]["provider_data"] == {"origin": "parrot", "raw": "c2ln"}
    assert sent[1] == {"type": "call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}


def test_stream_yields_deltas_of_text_and_thoughts(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(agent: Any) -> list[Any]:
        return [event async for event in agent.stream("1 + 2?")]

    with recorder(service := Service(*LOOP)):
        events = asyncio.run(main(asked(service, monkeypatch)))
    assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["Add them."]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["It ", "is 3."]


@pytest.mark.parametrize(
    ("arguments", "ends", "reason", "error"),
    [
        (('{"a": 1, "b"',), True, "end", "the arguments are not valid JSON"),
        (("[1, 2]",), True, "end", "the arguments must be a JSON object, not list"),
        (('{"a": 1, "b": 2}',), False, "length", "the arguments are incomplete"),
        (('{"a": 1, "b": 2}',), True, "length", "the response was cut off"),
    ],
)
def test_calls_that_cannot_be_read_or_were_cut_are_never_executed(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], ends: bool, reason: str, error: str
) -> None:
    broken = [*call("add", *arguments, ends=ends), done(reason)]
    with recorder(service := Service(broken, *LOOP)):
        result = asked(service, monkeypatch).run_sync("1 + 2?")
    first, second = result.tool_calls
    assert (first.is_error, second.value, result.text) == (True, 3, "It is 3.")
    assert error in first.value
    told = service.seen[1].body["turns"][-1]["parts"]
    assert [(part["id"], part["is_error"]) for part in told] == [("c1", True)]


def test_stream_without_an_end_is_requested_again(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder(service := Service(text("It "), *LOOP)):
        result = asked(service, monkeypatch).run_sync("1 + 2?")
    assert (result.text, len(service.seen)) == ("It is 3.", 3)


def test_error_inside_a_stream_is_retried(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder(service := Service([{"error": "overloaded"}], [*text("It is 3."), done()])):
        result = asked(service, monkeypatch).run_sync("1 + 2?")
    assert (result.text, len(service.seen)) == ("It is 3.", 2)


def test_prompt_mode_works_with_the_provider(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [*text('TOOL_CALL: add({"a": 1,', ' "b": 2})'), done()]
    with recorder(service := Service(written, [*text("3"), done()])):
        agent = asked(service, monkeypatch)
        assert agent.run_sync("1 + 2?", prompt_mode=True).text == "3"
    assert "add" in service.seen[0].body["system"]
    assert service.seen[0].body["tools"] == []


@pytest.mark.parametrize("streamed", [False, True])
def test_recording_is_replayed_without_the_service(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, streamed: bool
) -> None:
    async def outcome(agent: Any) -> Any:
        if not streamed:
            return (await agent.run("1 + 2?")).messages
        stream = agent.stream("1 + 2?")
        events = [event async for event in stream]
        return [event for event in events if isinstance(event, TextDelta)], stream.result.messages

    with recorder(service := Service(*LOOP)):
        then = asyncio.run(outcome(record(asked(service, monkeypatch), tmp_path / "tape")))
    now = asyncio.run(outcome(replay(asked(service, monkeypatch), tmp_path / "tape")))
    assert now == then


@pytest.mark.requirement("P-01")
def test_terminal_finds_the_provider(plugin: Path, tmp_path: Path) -> None:
    python_path = os.pathsep.join([str(plugin), os.environ.get("PYTHONPATH", "")])
    with recorder(service := Service([*text("Hello!"), done()])):
        variables = {"PYTHONPATH": python_path, "PARROT_URL": service.url, "PARROT_API_KEY": "polly"}
        named = midspan("ask", "-m", "parrot:parrot-green", "hi", home=tmp_path, **variables)
        chosen = midspan("ask", "hi", home=tmp_path, **variables)
    assert (named.code, named.out) == (chosen.code, chosen.out) == (0, "Hello!\n"), named.err + chosen.err
    listed = midspan("models", home=tmp_path, PYTHONPATH=python_path)
    assert "parrot\n" in listed.out
    assert midspan("ask", "-m", "parrot:x", "hi", home=tmp_path).code == 2


def test_names_on_the_page_exist() -> None:
    page = parrot.PAGE.read_text("utf-8")
    for name in ("StreamAccumulator", "RestClient", "ProviderFamily"):
        assert hasattr(providers, name)
        assert name in page
    assert FinishReason("end") is FinishReason.END
