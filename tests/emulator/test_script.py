import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, ToolCall
from midspan._types.specs import ModelSettings, ToolChoice
from midspan.emulator import Conversation, LocalGemini, Rule, Script, When, answer, call
from midspan.emulator.gemini.script import load_script
from midspan.errors import ConfigError, RateLimitError
from midspan.providers.offline.client import Offline
from tests.emulator.plain_client import VERTEX, ask, calling, events, model, result, stream, tools, user
from tests.streaming import PartsProvider

HI = {"contents": [user("Hi.")]}
ROUND = [user("Hi."), model(calling("f")), user(result("f"))]
WITH_TOOLS: dict[str, Any] = {**HI, "tools": tools("f", "g")}


def text(reply: Any) -> str:
    return "".join(part.get("text", "") for part in reply.parts)


def forced(mode: str, *names: str) -> dict[str, Any]:
    allowed = {"allowedFunctionNames": list(names)} if names else {}
    return {**WITH_TOOLS, "toolConfig": {"functionCallingConfig": {"mode": mode, **allowed}}}


def test_answers_follow_the_turns_of_the_model_and_the_last_one_repeats() -> None:
    with LocalGemini(["One.", "Two."]) as server:
        assert text(ask(server.url, HI)) == text(ask(server.url, HI)) == "One."
        assert text(ask(server.url, {"contents": ROUND})) == "Two."
        assert text(ask(server.url, {"contents": [*ROUND, model("Two."), user("And?")]})) == "Two."


def test_the_first_rule_whose_conditions_all_hold_answers() -> None:
    script = Script(
        [
            Rule(When(says="weather"), answer("Rainy.")),
            Rule(When(results=("f",)), answer("f came back.")),
            Rule(When(model="gemini-2*", step=0), answer("Old.")),
            "Whatever.",
        ]
    )
    with LocalGemini(script) as server:
        assert text(ask(server.url, {"contents": [user("The weather?")]})) == "Rainy."
        assert text(ask(server.url, {"contents": ROUND})) == "f came back."
        assert text(ask(server.url, WITH_TOOLS, "gemini-2.5-flash")) == "Old."
        assert text(ask(server.url, WITH_TOOLS)) == "Whatever."


def test_a_function_of_the_conversation_can_be_the_script() -> None:
    def script(conversation: Conversation) -> Any:
        if conversation.step == 0:
            return [f"You have {', '.join(conversation.functions)}.", call("f", x=1)]
        return f"{conversation.results} after {conversation.last_text!r}"

    with LocalGemini(script) as server:
        parts = ask(server.url, WITH_TOOLS).parts
        assert parts[0]["text"] == "You have f, g."
        assert parts[1]["functionCall"]["args"] == {"x": 1}
        assert text(ask(server.url, {"contents": ROUND})) == "('f',) after 'Hi.'"


def test_an_async_function_can_be_the_script() -> None:
    async def script(conversation: Conversation) -> Any:
        await asyncio.sleep(0)
        return "Later."

    with LocalGemini(script) as server:
        assert text(ask(server.url, HI)) == "Later."


def test_an_exception_in_a_script_is_reported_and_not_retried() -> None:
    def script(conversation: Conversation) -> Any:
        raise RuntimeError("no idea")

    with LocalGemini(script) as server:
        reply = ask(server.url, HI)
        assert (reply.status, reply.message) == (501, "RuntimeError: no idea")
        assert ask(server.url, HI).status == 501, "the server continues"
    with LocalGemini(Script([Rule(When(says="x"), answer("y"))])) as server:
        assert "no rule of the script matches step 0" in ask(server.url, HI).message


def test_an_answer_sets_finish_reason_usage_and_chunks() -> None:
    limited = answer(
        {"text": "Hm.", "thought": True},
        "Ab",
        finish_reason="MAX_TOKENS",
        finish_message="Enough.",
        usage={"thoughtsTokenCount": 7},
        chunks=2,
    )
    with LocalGemini([limited]) as server:
        request = {**HI, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
        response = ask(server.url, request).json
        assert response["candidates"][0]["content"]["parts"][0] == {"text": "Hm.", "thought": True}
        assert response["candidates"][0]["finishMessage"] == "Enough."
        assert response["usageMetadata"]["thoughtsTokenCount"] == 7
        assert response["usageMetadata"]["totalTokenCount"] > 7
        assert "thought" not in ask(server.url, HI).parts[0], "thoughts are sent only if they are requested"
        documents = events(stream(server.url, HI))
        assert [part["text"] for document in documents for part in document["candidates"][0]["content"]["parts"]] == [
            "A",
            "b",
            "",
        ]


def test_answers_follow_the_function_calling_mode_and_the_allowed_names() -> None:
    with LocalGemini(["I would rather talk."]) as server:
        assert ask(server.url, forced("ANY")).parts[0]["functionCall"]["name"] == "f"
        assert ask(server.url, forced("ANY", "g")).parts[0]["functionCall"]["name"] == "g"
        assert (
            text(ask(server.url, forced("AUTO")))
            == text(ask(server.url, forced("VALIDATED")))
            == "I would rather talk."
        )
    with LocalGemini([call("f")]) as server:
        assert ask(server.url, forced("ANY", "g")).parts[0]["functionCall"]["name"] == "g"
        assert ask(server.url, forced("ANY", "f", "g")).parts[0]["functionCall"]["name"] == "f"
        assert "functionCall" not in ask(server.url, forced("NONE")).parts[0]
        assert "functionCall" not in ask(server.url, forced("VALIDATED", "g")).parts[0]
        candidate = ask(server.url, HI).json["candidates"][0]
        assert (candidate["finishReason"], candidate["content"]) == ("UNEXPECTED_TOOL_CALL", {"role": "model"})


def test_a_call_without_arguments_has_no_args(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text("[[answers]]\ncalls = [{ name = 'f' }]")
    for script in ([call("f")], str(path)):
        with LocalGemini(script) as server:
            first = ask(server.url, WITH_TOOLS).parts[0]
            assert "args" not in first["functionCall"]
            for echoed in (first, {**first, "functionCall": {**first["functionCall"], "args": {}}}):
                contents = [user("Hi."), model(echoed), user(result("f"))]
                assert ask(server.url, {**WITH_TOOLS, "contents": contents}).status == 200
    with LocalGemini([{"functionCall": {"name": "f", "args": {}}}]) as server:
        assert ask(server.url, WITH_TOOLS).parts[0]["functionCall"]["args"] == {}
    with LocalGemini() as server:
        assert "args" not in ask(server.url, forced("ANY")).parts[0]["functionCall"]


def test_a_forced_call_has_arguments_that_fit_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 6},
            "days": {"type": "integer", "minimum": 3},
            "unit": {"enum": ["C", "F"]},
            "who": {"$ref": "#/$defs/who"},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
            "other": {"type": "string"},
        },
        "required": ["city", "days", "unit", "who", "tags"],
        "$defs": {"who": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
    }
    request = {**forced("ANY"), "tools": tools({"name": "f", "parametersJsonSchema": schema})}
    with LocalGemini() as server:
        arguments = ask(server.url, request).parts[0]["functionCall"]["args"]
    assert arguments == {"city": "texttt", "days": 3, "unit": "C", "who": "text", "tags": [True, True]}


def test_models_send_ids_and_signatures_by_family() -> None:
    with LocalGemini([call("f"), "Well."], retired_models=True) as server:
        first = ask(server.url, WITH_TOOLS).parts[0]
        assert first["functionCall"]["id"]
        assert first["thoughtSignature"]
        second = ask(server.url, WITH_TOOLS).parts[0]
        assert (second["functionCall"]["id"], second["thoughtSignature"]) != (
            first["functionCall"]["id"],
            first["thoughtSignature"],
        )
        old = ask(server.url, WITH_TOOLS, "gemini-2.5-flash").parts[0]
        assert "id" not in old["functionCall"]
        assert old["thoughtSignature"]
        assert "thoughtSignature" not in ask(server.url, WITH_TOOLS, "gemini-2.0-flash").parts[0]
        for budget, is_signed in ((0, False), (1, True)):
            request = {**WITH_TOOLS, "generationConfig": {"thinkingConfig": {"thinkingBudget": budget}}}
            part = ask(server.url, request, "gemini-2.5-flash").parts[0]
            assert ("thoughtSignature" in part) is is_signed, budget
        vertex = ask(server.url, WITH_TOOLS, path=VERTEX.replace("v1beta1", "v1")).parts[0]
        assert "id" not in vertex["functionCall"]
        next_request = {
            **WITH_TOOLS,
            "contents": [user("Hi."), model(first), user(result("f", id=first["functionCall"]["id"]))],
        }
        assert text(ask(server.url, next_request)) == "Well."


def test_own_signatures_are_verified_and_foreign_ones_rejected_only_in_strict_mode() -> None:
    def next_request(signed: Any, name: str = "f") -> Any:
        part = {"functionCall": {"name": name, "args": {}}, "thoughtSignature": signed}
        return {**WITH_TOOLS, "contents": [user("Hi."), model(part), user(result(name))]}

    with LocalGemini([call("f"), "Well."]) as server, LocalGemini(["Well."], strict_signatures=True) as strict:
        own = ask(server.url, WITH_TOOLS).parts[0]["thoughtSignature"]
        urlsafe = own.translate(str.maketrans("+/", "-_"))
        for signed in (own, urlsafe, "skip_thought_signature_validator", "context_engineering_is_the_way_to_go"):
            assert (
                ask(server.url, next_request(signed)).status == ask(strict.url, next_request(signed)).status == 200
            ), signed
        moved = ask(server.url, next_request(own, "g"))
        assert (moved.status, moved.message) == (400, "Invalid thought signature.")
        for cut in (own[:-8], own[:16], own + "AAAA"):
            assert ask(server.url, next_request(cut)).message == "Corrupted thought signature.", cut
        for at in range(12, len(own)):
            assert ask(server.url, next_request(_flipped(own, at))).message == "Invalid thought signature.", at
        foreign = "CpQBAR/MhbZ0k3v9Zx4Qk3v9Zx4Q"
        assert ask(server.url, next_request(foreign)).status == 200
        assert ask(strict.url, next_request(foreign)).message == "Invalid thought signature."


def _flipped(signature: str, at: int) -> str:
    return signature[:at] + ("A" if signature[at] != "A" else "B") + signature[at + 1 :]


def test_a_signature_is_valid_only_on_the_first_call() -> None:
    def next_request(*parts: Any) -> Any:
        answers = [result(part["functionCall"]["name"]) for part in parts]
        return {**WITH_TOOLS, "contents": [user("Hi."), model(*parts), user(*answers)]}

    with LocalGemini([answer(call("f", x=1), call("f", x=2)), "Well."]) as server:
        first, second = ask(server.url, WITH_TOOLS).parts
        bare = {key: value for key, value in first.items() if key != "thoughtSignature"}
        moved = {**second, "thoughtSignature": first["thoughtSignature"]}
        assert ask(server.url, next_request(first, second)).status == 200
        for parts in ((first, moved), (bare, moved)):
            assert ask(server.url, next_request(*parts)).message == "Invalid thought signature."


def test_documents_of_an_answer_are_sent_unchanged() -> None:
    documents = [{"candidates": [{"content": {"parts": [{"text": part}]}}], "more": 1} for part in ("On", "e.")]
    with LocalGemini(lambda _: answer(documents=documents)) as server:
        assert events(stream(server.url, HI)) == documents
        assert ask(server.url, HI).json == documents[-1]


TOML = """
[[answers]]
when = { says = "weather", step = 0 }
calls = [{ name = "get_weather", args = { city = "Oslo" } }]

[[answers]]
when = { results = ["get_weather"] }
text = "It is cold."
chunks = 2
finish_reason = "MAX_TOKENS"
usage = { promptTokenCount = 12 }

[[answers]]
text = "Hello."
"""


def test_a_script_can_be_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(TOML)
    with LocalGemini(str(path)) as server:
        declared = tools("get_weather")
        request = {"contents": [user("The weather?")], "tools": declared}
        part = ask(server.url, request).parts[0]
        assert part["functionCall"]["args"] == {"city": "Oslo"}
        next_request = {"contents": [user("The weather?"), model(part), user(result("get_weather"))], "tools": declared}
        response = ask(server.url, next_request).json
        assert response["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert response["usageMetadata"]["promptTokenCount"] == 12
        assert text(ask(server.url, HI)) == "Hello."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answers = 5", "invalid script: answers: expected array, got integer 5$"),
        (
            "[[answers]]\ntext = 'x'\n[[answers]]\ntxt = 'x'",
            r"invalid script: answers\[1\].txt: is not a property of this object; did you mean text\? .*, calls, when$",
        ),
        ("[[answers]]\nwhen = { sys = 'x' }", r"answers\[0\].when.sys: is not a property.*; did you mean says\?"),
        ("[[answers]]\nwhen = 5", r"answers\[0\].when: expected object or null, got 5$"),
        ("[[answers]]\ncalls = ['x']", r'answers\[0\].calls\[0\]: expected object, got string "x"$'),
        ("[[answers]]\ncalls = [{ nam = 'x' }]", r"answers\[0\].calls\[0\].nam: .* did you mean name\?"),
        ("[[answers", "Expected ']]'"),
        ("[[answers]]\nchunks = -1", r"answers\[0\].chunks: expected at least 1, got -1$"),
        ("[[answers]]\ngap_seconds = -5", "gap_seconds"),
        ("[[answers]]\ndelay_seconds = nan", "delay_seconds"),
        ("[[answers]]\ndelay_seconds = inf", "delay_seconds"),
        ("[[answers]]\nusage = { promptTokenCount = -1 }", "usage"),
    ],
)
def test_an_invalid_script_file_is_rejected_with_its_path(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"script\.toml.*{message}"):
        load_script(path)


def test_an_unreadable_script_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the script .*nothing\.toml': No such file"):
        load_script(tmp_path / "nothing.toml")
    path = tmp_path / "script.toml"
    path.write_bytes(b"[[answers]]\ntext = '\xff'")
    with pytest.raises(ConfigError, match="can't decode byte 0xff in position 20"):
        load_script(path)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(ConfigError, match="cannot read the script"):
            LocalGemini(name)


def test_a_script_may_be_one_answer() -> None:
    for script in ({"text": "x"}, answer("x")):
        with LocalGemini(script) as server:
            assert text(ask(server.url, HI)) == "x"


def test_an_invalid_script_or_model_is_rejected_by_the_constructor() -> None:
    for script in (5, b"x"):
        with pytest.raises(ConfigError, match=r"invalid answer: parts\[0\]: expected object"):
            LocalGemini(script)
    with pytest.raises(ConfigError, match="a script needs at least one answer"):
        LocalGemini([])
    with pytest.raises(ConfigError, match="invalid condition: step: expected integer or null, got "):
        LocalGemini([Rule(When(step="a"), "x")])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pass either a script or a model, not both"):
        LocalGemini(["x"], model=Weather())


NAN = float("nan")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["x", 5], r"invalid answer: parts\[0\]: expected object, got integer 5$"),
        (["x", b"y"], r"invalid answer: parts\[0\]: expected object"),
        ([["x", 5]], r"invalid answer: parts\[1\]: expected object"),
    ],
)
def test_an_invalid_answer_is_rejected(entries: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Script(entries)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("delay_seconds", (NAN, "a", -1, float("inf"), None, True)),
        ("gap_seconds", (NAN, "a", -1, 1e9)),
        ("usage", (5, None, [1], {"a": "b"}, {"a": -1}, {"a": 1.5})),
        ("chunks", ("q", 0, -1, 1.5, True, None)),
        ("finish_reason", (5,)),
        ("finish_message", (5,)),
        ("extra", (5, [5], None)),
        ("documents", (5, "x", {}, [5])),
    ],
)
def test_an_invalid_option_of_an_answer_is_rejected(option: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"^invalid answer: {option}[^:$]*: (?:expected|invalid)"):
            answer("x", **{option: value})


def test_an_unknown_option_of_an_answer_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"invalid answer: unknown setting 'chunk'; did you mean chunks\?"):
        answer("x", chunk=5)


def test_the_answer_of_a_rule_may_be_text_or_parts() -> None:
    rules = [Rule(When(says="one"), "One."), Rule(When(says="two"), call("f", x=1)), Rule(When(), ["a", "b"])]
    with LocalGemini(rules) as server:
        assert text(ask(server.url, {"contents": [user("one")]})) == "One."
        assert ask(server.url, {**WITH_TOOLS, "contents": [user("two")]}).parts[0]["functionCall"]["args"] == {"x": 1}
        assert text(ask(server.url, HI)) == "ab"


def test_a_function_that_returns_no_answer_is_reported() -> None:
    with LocalGemini(lambda _: 5) as server:
        message = ask(server.url, HI).message
    assert message.startswith("ConfigError: invalid answer: parts[0]: expected object, got integer 5")


def test_an_invalid_regular_expression_is_rejected_when_the_rule_is_created(tmp_path: Path) -> None:
    problem = r"'\(' is not a valid regular expression: missing \), unterminated subpattern at position 0"
    with pytest.raises(ConfigError, match=f"^{problem}$"):
        When(says="(")
    path = tmp_path / "bad.toml"
    path.write_text("[[answers]]\nwhen = { says = '(' }\ntext = 'x'")
    with pytest.raises(
        ConfigError,
        match=rf"^cannot read the script '.*bad\.toml': invalid script: {problem} - at `\$.answers\[0\].when`$",
    ):
        LocalGemini(str(path))


def test_the_functions_of_a_condition_may_be_lists() -> None:
    rule = Rule(When(results=["f"]), "Done.")  # type: ignore[arg-type]
    with LocalGemini([rule, "Other."]) as server:
        assert text(ask(server.url, {"contents": ROUND})) == "Done."


def test_a_rule_needs_an_answer() -> None:
    for other, problem in (
        (5, r"parts\[0\]: expected object"),
        (None, "parts"),
        (lambda _: "x", "contains .* not JSON"),
    ):
        with pytest.raises(ConfigError, match=f"invalid answer: {problem}"):
            Script([Rule(When(), other)])


class Weather(PartsProvider):
    """A model that calls the first tool and then repeats its result."""

    model = "weather"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        last = request.history.messages[-1]
        if "fail" in last.text:
            raise RateLimitError("too much", status=429)
        parts: tuple[Part, ...] = (
            (Text(f"It is {last.results[0].value}."),)
            if last.results
            else (
                Text("Let me see."),
                ToolCall("local", request.config.tools[0].name, {"city": "Oslo"}),
            )
        )
        yield ModelResponse(Message("model", parts), FinishReason.END, usage=Usage(input=3, output=4))


def test_a_provider_can_answer() -> None:
    provider = Weather()
    declaration = {"name": "get_weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}
    setup: dict[str, Any] = {
        "tools": tools(declaration),
        "systemInstruction": user("Be brief."),
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {
            "responseMimeType": "application/json",
            "maxOutputTokens": 50,
            "temperature": 0.5,
            "topP": 0.9,
            "stopSequences": ["END"],
            "seed": 7,
        },
    }
    with LocalGemini(model=provider) as server:
        documents = events(stream(server.url, {**setup, "contents": [user("Hi.")]}))
        last = documents[-1]["candidates"][0]
        called = last["content"]["parts"][0]
        assert (called["functionCall"]["name"], last["finishReason"]) == ("get_weather", "STOP")
        assert b"midspan" in b64decode(called["thoughtSignature"]), "the server signs calls of the provider itself"
        parts = [part for document in documents for part in document["candidates"][0]["content"]["parts"]]
        answered = result("get_weather", id=called["functionCall"]["id"])
        reply = ask(server.url, {**setup, "contents": [user("Hi."), model(*parts), user(answered)]})
        assert text(reply) == "It is 1."
        assert reply.json["usageMetadata"]["promptTokenCount"] == 3
        failed = ask(server.url, {"contents": [user("fail")]})
        assert (failed.status, failed.message) == (429, "too much")
    request = provider.requests[1]
    assert request.config.system == "Be brief."
    assert request.config.tools[0].parameters["properties"]["city"]["type"] == "string"  # type: ignore[union-attr, index]
    assert request.config.settings == ModelSettings(max_tokens=50, temperature=0.5, top_p=0.9, stop=("END",), seed=7)
    assert request.config.output is not None
    assert request.config.tool_choice == ToolChoice("auto")
    assert [message.role for message in request.history] == ["user", "model", "user"]
    assert request.history.messages[2].results[0].id == request.history.messages[1].calls[0].id


def test_the_offline_model_can_answer() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    declaration = {"name": "get_weather", "description": "The weather in a city.", "parametersJsonSchema": schema}
    request = {"contents": [user("Get the weather in Oslo.")], "tools": tools(declaration)}
    with LocalGemini(model=Offline()) as server:
        last = events(stream(server.url, request))[-1]["candidates"][0]
    assert last["finishReason"] == "STOP"
    assert last["content"]["parts"][0]["functionCall"]["args"] == {"city": "Oslo"}
    assert last["content"]["parts"][0]["thoughtSignature"]


def test_answer_takes_over_what_the_user_said() -> None:
    rule = Rule(
        When(says=r"in (?P<city>\w+)(?: on (?P<day>\w+))?"),
        answer("Weather in {city} on {day}, {other}:", call("get_weather", city="{city}", days=[1])),
    )
    with LocalGemini([rule]) as server:
        reply = ask(server.url, {"contents": [user("How is it in Oslo?")], "tools": tools("get_weather")})
    assert text(reply) == "Weather in Oslo on , {other}:"
    assert reply.parts[1]["functionCall"]["args"] == {"city": "Oslo", "days": [1]}
