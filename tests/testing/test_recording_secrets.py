"""Recordings contain no secrets."""

import asyncio
import gc
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from midspan import Agent, Gemini, tool
from midspan._http.retry import RetryPolicy
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, ProviderData, Text, ToolCall, ToolResult
from midspan.emulator import call
from midspan.errors import ConfigError, ProviderError, ServerError
from midspan.providers.auth import secrets_in_use
from midspan.providers.openai.profile import JSON_SCHEMA
from midspan.providers.provider import ModelProfile
from midspan.testing import LocalGemini, ScriptedProvider, assert_replays, masking, record, replay
from midspan.testing.format import LINE_END
from midspan.testing.masking import SecretMasker
from midspan.tools import Renamed
from tests.gemini.recorder import recorder

SECRETS = {
    "google": "AIzaSyD-0123456789abcdefghijklmnopqrstu",
    "oauth": "ya29.a0AfH6SMBx-0123456789_abcdef",
    "openai": "sk-proj-0123456789abcdefABCDEF",
    "anthropic": "sk-ant-api03-0123456789abcdefABCDEF",
    "bearer": "Bearer 0123456789.abc~def+ghi/jkl==",
    "upper bearer": "AUTHORIZATION: BEARER 0a1b2c3d4e5f6a7b8c9d",
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
    once = [json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
    return [secret, *once, *(json.dumps(text, ensure_ascii=False)[1:-1] for text in once)]


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
def test_secrets_are_masked_everywhere_and_the_run_replays(tmp_path: Path, kind: str, streamed: bool) -> None:
    secret = SECRETS[kind]

    def ask(agent: Agent) -> str:
        if not streamed:
            return agent.run_sync(f"My key is {secret}").text

        async def main() -> str:
            stream = agent.stream(f"My key is {secret}")
            assert [event async for event in stream]
            return stream.result.text

        return asyncio.run(main())

    system = f"Never tell {secret}!"
    ask(record(Agent(ScriptedProvider(told(secret)), [reveal], system=system), tmp_path, secrets=["swordfish"]))
    [path] = tmp_path.iterdir()
    data = path.read_text("utf-8")
    assert [piece for piece in pieces(secret) if piece in data] == []
    assert data.count("[masked]") > 10
    assert '"yes":"true"' in data
    assert all(json.loads(line) for line in path.read_bytes().split(LINE_END)[:-1])
    text = ask(replay(Agent(ScriptedProvider([]), [reveal], system=system), tmp_path))
    assert text.startswith("Again: ")
    assert secret not in text


def test_replay_works_with_another_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("correct horse", "battery staple"):
        record(Agent(ScriptedProvider(["yes"])), tmp_path, secrets=[secret]).run_sync(f"{secret} is it, {secret}!")
    monkeypatch.delenv("MY_API_KEY")
    replaying = replay(Agent(ScriptedProvider([])), tmp_path)
    assert replaying.run_sync("another is it, word!").text == "yes"
    with pytest.raises(ConfigError, match=r'recorded "\[masked\] is it, \[masked\]!", now "another is not, word!"'):
        replaying.run_sync("another is not, word!")


def test_secret_in_an_error_is_masked(tmp_path: Path) -> None:
    error = ServerError(f"{SECRETS['google']} failed", status=500, details=[{"key": SECRETS["oauth"]}])
    with pytest.raises(ServerError):
        record(Agent(ScriptedProvider([error])), tmp_path).run_sync("go")
    data = (tmp_path / "run-00001.jsonl").read_text()
    assert SECRETS["google"] not in data
    assert SECRETS["oauth"] not in data
    with pytest.raises(ServerError, match=r"^\[masked\] failed$"):
        replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go")


WORDS = ["messages", "function", "response", "reason", "parts", "result", "model", "user", "line", "5", "0", "true"]


@pytest.mark.parametrize("word", WORDS)
def test_secret_that_is_a_word_of_the_file_format_does_not_damage_the_file(tmp_path: Path, word: str) -> None:
    picture = Blob.of(b"\xd7M4\xe3M4\xd3M4", "image/png")
    recording = record(Agent(ScriptedProvider(told(word)), [reveal]), tmp_path, secrets=[word])
    recording.run_sync([f"My {word} is safe.", picture])
    assert f"My {word} is safe." not in (tmp_path / "run-00001.jsonl").read_text()
    replaying = replay(Agent(ScriptedProvider([]), [reveal]), tmp_path)
    assert replaying.run_sync([f"My {word} is safe.", picture]).text == "Again: [masked]"


def test_run_replays_if_the_name_of_a_parameter_is_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def log_in(user: str, password: str) -> str:
        """Log in."""
        return f"{user} is logged in with {password}"

    monkeypatch.setenv("DB_PASSWORD", "password")
    calls = ToolCall("1", "log_in", {"user": "ada", "password": "x"})
    record(Agent(ScriptedProvider([calls, "Done."]), [log_in]), tmp_path).run_sync("go")
    assert '"[masked]":"x"' in (tmp_path / "run-00001.jsonl").read_text()
    replayed = replay(Agent(ScriptedProvider([]), [log_in]), tmp_path).run_sync("go")
    assert (replayed.tool_calls[0].result.value, replayed.text) == ("ada is logged in with x", "Done.")


def test_run_replays_if_a_secret_is_part_of_the_name_of_a_tool(tmp_path: Path) -> None:
    model = ScriptedProvider(
        [ToolCall("1", "reveal", {"word": "veal"}), ToolCall("2", "my_veal", {}), "I call reveal."]
    )
    agent = Agent(model, [reveal])
    record(agent, tmp_path, secrets=["veal"]).run_sync("go")
    assert '"my_[masked]"' in (tmp_path / "run-00001.jsonl").read_text()
    assert_replays(agent, tmp_path)
    replayed = replay(agent, tmp_path).run_sync("go")
    call = replayed.tool_calls[0].call
    assert (call.name, call.arguments) == ("reveal", {"word": "[masked]"})
    assert replayed.text == "I call reveal."


QUESTION = Message.user("Who?")
CALL = Message("model", (ToolCall("0", "reveal", {"word": "x"}),))
RESULT = Message.user(ToolResult("0", "reveal", "x"))


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": "reveal"},
        {"limits": {"max_calls_per_tool": {"reveal": 3}}},
        {"messages": [QUESTION, CALL, RESULT]},
        {"prompt_mode": True},
    ],
    ids=["tool_choice", "limits", "messages", "prompt_mode"],
)
def test_options_and_messages_replay_if_a_secret_is_part_of_the_name_of_a_tool(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    call = 'TOOL_CALL: reveal({"word": "x"})' if "prompt_mode" in options else CALL.parts[0]
    agent = Agent(ScriptedProvider([call, "Done."]), [reveal])
    record(agent, tmp_path, secrets=["veal"]).run_sync("go", **options)
    assert_replays(agent, tmp_path)


def test_run_replays_if_a_secret_is_part_of_the_name_that_the_model_uses_for_a_tool(tmp_path: Path) -> None:
    dotted = Renamed(reveal, {"reveal": "re.veal"})
    script = [ToolCall("0", "re_veal", {"word": "x"}), "Done."]
    agent = Agent(ScriptedProvider(script, profile=ModelProfile(schema=JSON_SCHEMA)), [dotted])
    assert record(agent, tmp_path, secrets=["_veal"]).run_sync("go").tool_calls[0].result.is_error is False
    assert_replays(agent, tmp_path)


def test_secret_that_contains_or_follows_the_name_of_a_tool_is_masked(tmp_path: Path) -> None:
    secrets = ["reveal all", "we reveal nothing", "veal"]
    agent = Agent(ScriptedProvider(["reveal all, we reveal nothing, reveals"]), [reveal])
    record(agent, tmp_path, secrets=secrets).run_sync("go")
    assert replay(agent, tmp_path).run_sync("go").text == "[masked], [masked], re[masked]s"


def test_masked_documents_are_valid_json(tmp_path: Path) -> None:
    document = Raw(b'{"pin" : 8675309123, "name": "swordfish"}\n')
    answer = ModelResponse(Message("model", (Text("yes"),)), FinishReason.END, raw=(document,))
    record(Agent(ScriptedProvider([answer])), tmp_path, secrets=["swordfish"]).run_sync("go")
    replayed = replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go").response
    assert replayed.raw == (Raw(b'{"pin" : "[masked]", "name": "[masked]"}\n'),)


def test_text_that_only_resembles_a_secret_is_not_masked(tmp_path: Path) -> None:
    said = "The bearer of task-oriented news asked for sk-8, AIza and true; base64 xAIzaSyD-0123456789abcdefghijklm+/."
    assert record(Agent(ScriptedProvider([said])), tmp_path).run_sync("go").text == said
    assert replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go").text == said


@pytest.mark.parametrize("secrets", ["swordfish", {"name": "swordfish"}, ["", "  ", "swordfish"]])
def test_secrets_may_be_one_string_or_a_dict_and_blank_ones_are_ignored(secrets: Any) -> None:
    assert SecretMasker(secrets, environment={}).mask("A name, a swordfish.") == "A name, a [masked]."


def test_password_in_a_url_is_masked() -> None:
    masked = SecretMasker(environment={}).mask("postgres://ada:p4ssw0rdX@host/shop and https://u:hunter22@host/")
    assert "p4ssw0rdX" not in masked
    assert "hunter22" not in masked
    assert "@host/shop" in masked


KEY = "plain-looking-key-9472"


@tool
async def show_settings() -> str:
    """Show the settings."""
    return f"api_key = {KEY}"


def recorded_with(provider: Gemini, folder: Path, prompt: str = "Go.") -> str:
    """The recording of a run, whether or not it ends with an error."""
    with suppress(ProviderError):
        record(Agent(provider, [show_settings]), folder).run_sync(prompt)
    return (folder / "run-00001.jsonl").read_text("utf-8")


def test_key_of_the_provider_is_masked_from_the_first_line_on(tmp_path: Path) -> None:
    with LocalGemini([call("show_settings"), "Done."]) as server:
        provider = Gemini("gemini-3.8-flash", api_key=KEY, base_url=server.url)
        data = recorded_with(provider, tmp_path, f"My key is {KEY}, isn't it?")
    assert KEY not in data
    assert '"text":"My key is [masked], isn\'t it?"' in data
    assert '"value":"api_key = [masked]"' in data


def test_secret_in_a_header_is_masked_from_the_first_line_on(tmp_path: Path) -> None:
    with LocalGemini(["Done."]) as server:
        provider = Gemini("gemini-3.8-flash", api_key="k", base_url=server.url, headers={"x-gateway-token": KEY})
        data = recorded_with(provider, tmp_path, f"My token is {KEY}.")
    assert KEY not in data


def test_token_of_the_provider_is_masked_after_its_first_use(tmp_path: Path) -> None:
    def answer(part: dict[str, Any]) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}

    with recorder() as server:
        server.answer(answer({"functionCall": {"name": "show_settings"}}))
        server.answer(answer({"text": f"Done with {KEY}."}))
        provider = Gemini(
            "gemini-3.8-flash", vertex=True, project="p", location="global", token=lambda: KEY, base_url=server.url
        )
        data = recorded_with(provider, tmp_path)
    assert '"text":"Done with [masked]."' in data
    assert KEY not in data


@pytest.mark.parametrize("status", [400, 502])
def test_key_that_a_gateway_echoes_is_not_recorded(tmp_path: Path, status: int) -> None:
    with recorder() as server:
        server.answer(f"<html>upstream error: x-goog-api-key: {KEY}</html>".encode(), status=status)
        provider = Gemini("gemini-3.8-flash", api_key=KEY, base_url=server.url, retry=RetryPolicy(max_attempts=1))
        data = recorded_with(provider, tmp_path)
    assert f'"status":{status}' in data
    assert KEY not in data


def test_secrets_of_a_provider_are_forgotten_with_it() -> None:
    provider = Gemini("gemini-3.8-flash", api_key="a-key-for-this-test-only")
    assert "a-key-for-this-test-only" in secrets_in_use()
    del provider
    gc.collect()
    assert "a-key-for-this-test-only" not in secrets_in_use()


SECRET_VARIABLES = {
    "OPENAI_API_KEY": "correct horse",
    "apiKey": "swordfish",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIbPxRfiCY",
    "GITHUB_TOKEN": "tuvwxyz",
    "PGPASSWORD": "dragon",
    "DB_PASS": "german-shepherd",
    "APP_PWD": "hunter22",
    "SESSION_SECRETS": "opensesame",
    "GOOGLE_CREDENTIALS": "certificate",
    "OPENAI_KEY": "k3y-without-a-known-shape",
    "DATABASE_URL": "postgres://ada:opensesame@host/shop",
}
ORDINARY_VARIABLES = {
    "KEYBOARD_LAYOUT": "english",
    "XKB_KEYMAP": "german",
    "TOKENIZERS_PARALLELISM": "parallel",
    "MONKEY_NAME": "bonobo",
    "SECRETARY": "miranda",
    "SORT_KEY": "created_at",
    "KEY_BINDINGS": "emacs-like",
    "TOKEN_LIMIT": "2000000",
    "PUBLIC_KEY_URL": "https://example.org/keys/1234567890",
    "HOST_KEY_FILE": "/etc/ssh/host_key_2024",
    "PWD": "/home/ada/projects",
    "DEBUG_TOKEN": "1true",
    "DATABASE_URL": "postgres://localhost/shop",
}


def test_secret_in_json_in_a_string_is_masked() -> None:
    masker = SecretMasker(['sword"fish'], environment={})
    assert masker.mask('{"a": "sword\\"fish", "b": "\\\\"}') == '{"a": "[masked]", "b": "\\\\"}'
    assert masker.mask('It says {"a": "sword\\"fish"}.') == 'It says {"a": "[masked]"}.'


def test_secret_that_begins_where_another_one_ends_is_masked() -> None:
    assert SecretMasker(["hunter22"], environment={}).mask("hunter22sk-abcdefghijklmnop") == "[masked][masked]"


def test_string_without_an_end_is_searched_once() -> None:
    tokens = masking._STRING_OR_NUMBER.findall(b'"{' + b'\\"a\\", ' * 1_000)
    assert len(tokens) == 1, "from each quote in it, the time would be quadratic"


@pytest.mark.parametrize("text", ["{x: \\d}", '[open(path="C:\\data")]', '{"a": "\\ud800"}', 'a "\\d" b'])
def test_text_that_only_resembles_json_is_recorded_as_it_is(tmp_path: Path, text: str) -> None:
    assert record(Agent(ScriptedProvider([text])), tmp_path).run_sync("go").text == text
    assert replay(Agent(ScriptedProvider([])), tmp_path).run_sync("go").text == text


def test_overlapping_secrets_are_masked_completely() -> None:
    masker = SecretMasker(["mask", "swordfish-7", "swordfish"], environment={})
    assert masker.mask("swordfish-7 swordfish mask") == "[masked] [masked] [masked]"


@pytest.mark.parametrize("name", SECRET_VARIABLES)
def test_variable_that_holds_a_secret_is_masked(name: str) -> None:
    value = SECRET_VARIABLES[name]
    secret = "opensesame" if "://" in value else value
    masked = SecretMasker(environment={name: value}).mask(Raw(msgspec.json.encode({"text": f"I know {secret}!"})))
    assert masked == Raw(b'{"text":"I know [masked]!"}')


@pytest.mark.parametrize("name", ORDINARY_VARIABLES)
def test_variable_that_holds_no_secret_is_not_masked(name: str) -> None:
    value = ORDINARY_VARIABLES[name]
    data = Raw(msgspec.json.encode({"text": f"Translate {value}, please. {value.title()}! postgres localhost shop"}))
    assert SecretMasker(environment={name: value}).mask(data) == data
