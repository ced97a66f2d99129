"""No secret gets into a recording, wherever it is and however it is written."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from midspan import Agent, tool
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Opaque, ProviderData, Text, ToolCall
from midspan.errors import ConfigError, ServerError
from midspan.providers.recording.masking import Masking
from midspan.testing import ScriptedProvider, freeze, record, replay

SECRETS = {
    "google": "AIzaSyD-0123456789abcdefghijklmnopqrstu",
    "oauth": "ya29.a0AfH6SMBx-0123456789_abcdef",
    "openai": "sk-proj-0123456789abcdefABCDEF",
    "anthropic": "sk-ant-api03-0123456789abcdefABCDEF",
    "bearer": "Bearer 0123456789.abc~def+ghi/jkl==",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpM",
    "github": "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
    "private": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0\n-----END PRIVATE KEY-----",
    "variable": "correct horse",
    "quoted": 'pass"word\\with/odd\nletters ü',
    "number": "8675309123",
    "given": "swordfish",
}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRETS["variable"])
    monkeypatch.setenv("some_secret_thing", SECRETS["quoted"])
    monkeypatch.setenv("PIN_TOKEN", SECRETS["number"])
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")


@tool
async def reveal(word: str) -> dict[str, Any]:
    """Tell all."""
    return {"told": [word], word: 1, "written": json.dumps({"a": word}, indent=1), "pin": 8675309123, "yes": "true"}


def pieces(secret: str) -> list[str]:
    """The secret itself and as JSON writes it, once and twice."""
    once = json.dumps(secret, ensure_ascii=False)[1:-1]
    return [secret, once, json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]]


def told(secret: str) -> list[Any]:
    """What a model says that gives a secret away in every place there is."""
    raw = json.dumps({"text": secret}).replace("=", "\\u003d").replace("A", "\\u0041").encode()
    indented = json.dumps({"parts": [{"text": secret}]}, indent=2).encode()
    parts = (
        Text(f"I know {secret}."),
        Opaque("odd", ProviderData("other", Raw(raw))),
        ToolCall("1", "reveal", {"word": secret}),
    )
    return [
        ModelResponse(
            Message("model", parts, ProviderData("other", Raw(indented))),
            FinishReason.END,
            raw=(Raw(raw), Raw(indented)),
        ),
        f"Again: {secret}",
    ]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", SECRETS)
def test_no_secret_is_in_the_files_and_the_run_is_the_same_again(tmp_path: Path, kind: str, streamed: bool) -> None:
    secret = SECRETS[kind]

    def ask(agent: Agent) -> str:
        if not streamed:
            return agent.run_sync(f"My key is {secret}").text

        async def main() -> str:
            stream = agent.stream(f"My key is {secret}")
            assert [event async for event in stream]
            return stream.result.text

        return asyncio.run(main())

    more = {"secrets": ["swordfish"]}
    system = f"Never tell {secret}!"
    ask(record(Agent(ScriptedProvider(told(secret)), [reveal], system=system), tmp_path, **more))
    [path] = tmp_path.iterdir()
    data = path.read_text("utf-8")
    assert [piece for piece in pieces(secret) if piece in data] == []
    assert data.count("[masked]") > 10
    assert '"yes":"true"' in data
    assert all(json.loads(line) for line in data.splitlines())
    text = ask(replay(Agent(ScriptedProvider([]), [reveal], system=system), tmp_path, **more))
    assert text.startswith("Again: ")
    assert secret not in text
    assert [piece for piece in pieces(secret) if piece in freeze(tmp_path)] == []


def test_a_secret_may_be_another_one_when_it_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("correct horse", "battery staple"):
        record(Agent(ScriptedProvider(["yes"])), tmp_path, secrets=[secret]).run_sync(f"{secret} is it, {secret}!")
    monkeypatch.delenv("MY_API_KEY")
    replaying = replay(Agent(ScriptedProvider([])), tmp_path)
    assert replaying.run_sync("another is it, word!").text == "yes"
    with pytest.raises(ConfigError, match=r'recorded "\[masked\] is it, \[masked\]!", now "another is not, word!"'):
        replaying.run_sync("another is not, word!")


def test_a_secret_in_the_words_of_an_error_is_masked(tmp_path: Path) -> None:
    error = ServerError(f"{SECRETS['google']} failed", status=500, details=[{"key": SECRETS["oauth"]}])
    with pytest.raises(ServerError):
        record(Agent(ScriptedProvider([error])), tmp_path).run_sync("go")
    data = (tmp_path / "run-00001.jsonl").read_text()
    assert SECRETS["google"] not in data
    assert SECRETS["oauth"] not in data
    with pytest.raises(ServerError, match=r"^\[masked\] failed$"):
        replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go")


@pytest.mark.parametrize("word", ["messages", "function", "response", "reason", "parts", "result"])
def test_a_secret_that_is_a_word_of_the_form_does_not_break_it(tmp_path: Path, word: str) -> None:
    recording = record(Agent(ScriptedProvider(told(word)), [reveal]), tmp_path, secrets=[word])
    recording.run_sync(f"My {word} is safe.")
    assert f"My {word} is safe." not in (tmp_path / "run-00001.jsonl").read_text()
    replaying = replay(Agent(ScriptedProvider([]), [reveal]), tmp_path, secrets=[word])
    assert replaying.run_sync(f"My {word} is safe.").text == "Again: [masked]"


def test_what_only_resembles_a_secret_stays(tmp_path: Path) -> None:
    said = "The bearer of task-oriented news asked for sk-8, AIza and true; base64 xAIzaSyD-0123456789abcdefghijklm+/."
    assert record(Agent(ScriptedProvider([said])), tmp_path).run_sync("go").text == said
    assert replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go").text == said


@pytest.mark.parametrize("secrets", [[""], [5], ["  "], [["a"]], b"a", 5, None, {"name": "swordfish"}])
def test_a_secret_that_is_none_is_told(tmp_path: Path, secrets: Any) -> None:
    for use in (record, replay):
        with pytest.raises(ConfigError, match=r"^secrets (are|is a list of) texts") as raised:
            use(Agent(ScriptedProvider([])), tmp_path / "new", secrets=secrets)
        assert "swordfish" not in str(raised.value)
    assert not (tmp_path / "new").exists()


def test_a_password_inside_an_address_is_masked() -> None:
    masked = Masking(environment={}).masked(b'"postgres://ada:p4ssw0rdX@host/shop and https://u:hunter22@host/"')
    assert b"p4ssw0rdX" not in masked
    assert b"hunter22" not in masked
    assert b"@host/shop" in masked
