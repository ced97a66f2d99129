import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, ToolCall, ToolResult
from midspan.emulator import Answer, Conversation, LocalGemini, Rule, Script, When, answer, call
from midspan.emulator.sources.script_file import load_script, read_script
from midspan.errors import ConfigError, RateLimited
from midspan.providers.offline.client import Offline
from tests.emulator.asking import VERTEX, ask, calling, events, model, result, stream, tools, user
from tests.streaming import PartsProvider

HI = {"contents": [user("Hi.")]}
ROUND = [user("Hi."), model(calling("f")), user(result("f"))]
WITH_TOOLS: dict[str, Any] = {**HI, "tools": tools("f", "g")}


def text(reply: Any) -> str:
    return "".join(part.get("text", "") for part in reply.parts)


def forced(mode: str, *names: str) -> dict[str, Any]:
    given = {"allowedFunctionNames": list(names)} if names else {}
    return {**WITH_TOOLS, "toolConfig": {"functionCallingConfig": {"mode": mode, **given}}}


def test_answers_follow_the_turns_of_the_conversation_and_the_last_stays() -> None:
    with LocalGemini(["One.", "Two."]) as server:
        assert text(ask(server.url, HI)) == text(ask(server.url, HI)) == "One."
        assert text(ask(server.url, {"contents": ROUND})) == "Two."
        assert text(ask(server.url, {"contents": [*ROUND, model("Two."), user("And?")]})) == "Two."


def test_rules_are_tried_in_order_and_all_of_their_conditions_hold() -> None:
    script = Script(
        [
            Rule(When(says="weather"), answer("Rainy.")),
            Rule(When(results=("f",)), answer("f came back.")),
            Rule(When(system="poet", step=0), answer("O muse.")),
            Rule(When(functions=("g",), model="gemini-2*"), answer("Old g.")),
            "Whatever.",
        ]
    )
    with LocalGemini(script) as server:
        assert text(ask(server.url, {"contents": [user("The weather?")]})) == "Rainy."
        assert text(ask(server.url, {"contents": ROUND})) == "f came back."
        assert text(ask(server.url, {**HI, "systemInstruction": user("You are a poet.")})) == "O muse."
        assert text(ask(server.url, WITH_TOOLS, "gemini-2.5-flash")) == "Old g."
        assert text(ask(server.url, WITH_TOOLS)) == "Whatever."


def test_a_function_of_the_conversation_is_a_script_too() -> None:
    def script(conversation: Conversation) -> Any:
        if conversation.step == 0:
            return [f"You have {', '.join(conversation.functions)}.", call("f", x=1)]
        return f"{conversation.results} after {conversation.last_text!r}"

    with LocalGemini(script) as server:
        parts = ask(server.url, WITH_TOOLS).parts
        assert parts[0]["text"] == "You have f, g."
        assert parts[1]["functionCall"]["args"] == {"x": 1}
        assert text(ask(server.url, {"contents": ROUND})) == "('f',) after 'Hi.'"


def test_an_async_function_is_waited_for() -> None:
    async def script(conversation: Conversation) -> Any:
        await asyncio.sleep(0)
        return "Later."

    with LocalGemini(script) as server:
        assert text(ask(server.url, HI)) == "Later."


def test_what_a_script_does_wrong_is_told_as_an_error_of_the_server() -> None:
    def script(conversation: Conversation) -> Any:
        raise RuntimeError("no idea")

    with LocalGemini(script) as server:
        reply = ask(server.url, HI)
        assert (reply.status, reply.words) == (500, "RuntimeError: no idea")
        assert ask(server.url, HI).status == 500, "and the server goes on"
    with LocalGemini(Script([Rule(When(says="x"), answer("y"))])) as server:
        assert "no rule of the script is for step 0" in ask(server.url, HI).words


def test_an_answer_may_say_how_it_comes() -> None:
    made = answer(
        Thought("Hm."), "Ab", finish="MAX_TOKENS", finish_message="Enough.", usage={"thoughtsTokenCount": 7}, chunks=2
    )
    with LocalGemini([made]) as server:
        asked = {**HI, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
        found = ask(server.url, asked).json
        assert found["candidates"][0]["content"]["parts"][0] == {"text": "Hm.", "thought": True}
        assert found["candidates"][0]["finishMessage"] == "Enough."
        assert found["usageMetadata"]["thoughtsTokenCount"] == 7
        assert found["usageMetadata"]["totalTokenCount"] > 7
        assert "thought" not in ask(server.url, HI).parts[0], "thoughts are shown only to who asks for them"
        documents = events(stream(server.url, HI))
        assert [part["text"] for one in documents for part in one["candidates"][0]["content"]["parts"]] == [
            "A",
            "b",
            "",
        ]
    with LocalGemini([answer(blocked="SAFETY")]) as server:
        assert ask(server.url, HI).json["promptFeedback"] == {"blockReason": "SAFETY"}


def test_forced_modes_and_allowed_names_are_obeyed() -> None:
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


def test_a_forced_call_has_arguments_of_its_schema() -> None:
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
    asked = {**forced("ANY"), "tools": tools({"name": "f", "parametersJsonSchema": schema})}
    with LocalGemini() as server:
        made = ask(server.url, asked).parts[0]["functionCall"]["args"]
    assert made == {"city": "texttt", "days": 3, "unit": "C", "who": None, "tags": [True, True]}


def test_ids_and_signatures_are_given_by_the_families_that_give_them() -> None:
    with LocalGemini([call("f"), "Well."]) as server:
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
        vertex = ask(server.url, WITH_TOOLS, path=VERTEX.replace("v1beta1", "v1")).parts[0]
        assert "id" not in vertex["functionCall"]
        going_on = {
            **WITH_TOOLS,
            "contents": [user("Hi."), model(first), user(result("f", id=first["functionCall"]["id"]))],
        }
        assert text(ask(server.url, going_on)) == "Well."


def test_signatures_of_its_own_are_verified_and_others_only_if_told_to() -> None:
    def going_on(signed: Any, name: str = "f") -> Any:
        part = {"functionCall": {"name": name, "args": {}}, "thoughtSignature": signed}
        return {**WITH_TOOLS, "contents": [user("Hi."), model(part), user(result(name))]}

    with LocalGemini([call("f"), "Well."]) as server, LocalGemini(["Well."], strict_signatures=True) as strict:
        own = ask(server.url, WITH_TOOLS).parts[0]["thoughtSignature"]
        urlsafe = own.translate(str.maketrans("+/", "-_"))
        for signed in (own, urlsafe, "skip_thought_signature_validator", "context_engineering_is_the_way_to_go"):
            assert ask(server.url, going_on(signed)).status == ask(strict.url, going_on(signed)).status == 200, signed
        moved = ask(server.url, going_on(own, "g"))
        assert (moved.status, moved.words) == (400, "Invalid thought signature.")
        for damaged in (own[:-8], own[:4], *(_flipped(own, at) for at in (0, 3, 7, len(own) - 1))):
            assert ask(server.url, going_on(damaged)).words == "Corrupted thought signature.", damaged
        for at in range(8, 40):
            assert ask(server.url, going_on(_flipped(own, at))).status == 400, at
        foreign = "CpQBAR/MhbZ0k3v9Zx4Qk3v9Zx4Q"
        assert ask(server.url, going_on(foreign)).status == 200
        assert ask(strict.url, going_on(foreign)).words == "Invalid thought signature."


def _flipped(signature: str, at: int) -> str:
    return signature[:at] + ("A" if signature[at] != "A" else "B") + signature[at + 1 :]


def test_a_signature_belongs_to_one_call_with_its_arguments_in_its_place() -> None:
    def going_on(*parts: Any) -> Any:
        answers = [result(part["functionCall"]["name"]) for part in parts]
        return {**WITH_TOOLS, "contents": [user("Hi."), model(*parts), user(*answers)]}

    args = {"city": "Oslo", "days": 3, "large": 2**60 + 1, "nothing": None, "inner": [{"x": 1.0}]}
    with LocalGemini([answer(call("f", **args), call("f", city="Rome")), "Well."]) as server:
        first, second = ask(server.url, WITH_TOOLS).parts
        bare = {key: value for key, value in first.items() if key != "thoughtSignature"}
        signature = first["thoughtSignature"]
        assert ask(server.url, going_on(first, second)).status == 200
        rewritten = {"inner": [{"x": 1}], "large": float(2**60), "days": 3.0, "city": "Oslo"}
        echoed = {**first, "functionCall": {**first["functionCall"], "args": rewritten}}
        assert ask(server.url, going_on(echoed, second)).status == 200, "the same in other words"
        for parts in (
            (first, {**second, "thoughtSignature": signature}),
            (bare, {**second, "thoughtSignature": signature}),
            ({**second, "thoughtSignature": signature}, bare),
            ({**first, "functionCall": {**first["functionCall"], "args": {**args, "days": 4}}}, second),
        ):
            assert ask(server.url, going_on(*parts)).words == "Invalid thought signature."


TOML = """
[[answers]]
when = { says = "weather", step = 0 }
thought = "The weather, then."
calls = [{ name = "get_weather", args = { city = "Oslo" } }]

[[answers]]
when = { results = ["get_weather"] }
text = "It is cold."
chunks = 2
finish = "MAX_TOKENS"
usage = { promptTokenCount = 12 }

[[answers]]
text = "Hello."
"""


def test_a_script_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(TOML)
    with LocalGemini(str(path)) as server:
        declared = tools("get_weather")
        asked = {"contents": [user("The weather?")], "tools": declared}
        made = ask(server.url, asked).parts[0]
        assert made["functionCall"]["args"] == {"city": "Oslo"}
        going_on = {"contents": [user("The weather?"), model(made), user(result("get_weather"))], "tools": declared}
        found = ask(server.url, going_on).json
        assert found["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert found["usageMetadata"]["promptTokenCount"] == 12
        assert text(ask(server.url, HI)) == "Hello."


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("answers = 5", "not a script"),
        ("[[answers]]\ntxt = 'x'", "unknown field `txt`"),
        ("[[answers]]\nwhen = { sys = 'x' }", "unknown field `sys`"),
        ("[[answers", "written in TOML"),
        ("answers = []", "without any answers"),
        ("[[answers]]\nchunks = -1", "chunks"),
        ("[[answers]]\ngap_seconds = -5", "gap_seconds"),
        ("[[answers]]\ndelay_seconds = nan", "seconds|nan"),
        ("[[answers]]\ndelay_seconds = inf", "delay_seconds"),
        ("[[answers]]\nusage = { promptTokenCount = -1 }", "usage"),
        ("[[answers]]\nfinish = 'DONE'", "no answer ends with 'DONE'; known: .*MAX_TOKENS"),
        ("[[answers]]\nparts = [{ text = 2026-01-01 }]", "JSON, which has no 2026-01-01"),
        ("[[answers]]\ncalls = [{ name = 'f', args = { a = [{ b = 10:00:00 }] } }]", "which has no 10:00:00"),
        ("[[answers]]\nextra = { avgLogprobs = nan }", "which has no nan"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(given: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_script(given)
    path = tmp_path / "script.toml"
    path.write_text(given)
    with pytest.raises(ConfigError, match=r"script\.toml: "):
        load_script(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(tmp_path / "nothing.toml")
    path.write_bytes(b"[[answers]]\ntext = '\xff'")
    with pytest.raises(ConfigError, match="is no UTF-8: invalid start byte at byte 20"):
        load_script(path)


def test_what_cannot_be_a_script_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="a script is a list of answers"):
        LocalGemini(5)
    with pytest.raises(ConfigError, match="no regular expression"):
        When(says="(")
    with pytest.raises(ConfigError, match="give one of the two"):
        LocalGemini(["x"], model=Weather())
    with pytest.raises(ConfigError, match="model is a provider"):
        LocalGemini(model="gemini-3.8-flash")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="words and calls, not with ToolResult"):
        LocalGemini([[ToolResult("a", "f", 1)]])
    with pytest.raises(ConfigError, match="made of words and parts, not of int"):
        LocalGemini([5])
    for wrong in (b"x", {"text": "x"}, answer("x")):
        with pytest.raises(ConfigError, match="a script is a list of answers, a function of the conversation or"):
            LocalGemini(wrong)
    with pytest.raises(ConfigError, match="a script is no class; give one that is made, as Script"):
        LocalGemini(Script)
    with pytest.raises(ConfigError, match="model is a provider"):
        LocalGemini(model=Weather)  # type: ignore[arg-type]
    for name in ("a\0b", "\ud800"):
        with pytest.raises(ConfigError, match="cannot be read"):
            LocalGemini(name)


NAN = float("nan")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "a script is a list of answers and rules, not 5"),
        (None, "a script is a list of answers and rules, not None"),
        (b"x", "a script is a list of answers and rules, not b'x'"),
        ("hello", r"for this one answer give \['hello'\]"),
        (["x", 5], "entry 2 of the script: an answer is made of words and parts, not of int"),
        (["x", b"y"], "entry 2 of the script: an answer is made of words and parts, not of bytes"),
        ([["x", 5]], "entry 1 of the script: a model answers with words and calls, not with int"),
        ([Text(5)], "entry 1 of the script: the text of a part is a text, not 5"),  # type: ignore[arg-type]
        ([{"text": None}], "entry 1 of the script: the text of a part is a text, not None"),
        ([{"functionCall": 5}], "functionCall is a dict, as call"),
        ([call("f", x=NAN)], "sent as JSON, which has no nan; give a text or None in the part"),
        ([call("f", x=[{"y": (float("inf"),)}])], "sent as JSON, which has no inf"),
        ([{"text": "x", "more": object()}], "sent as JSON, which cannot say this part: "),
        (["\ud800"], "sent as JSON, which cannot say this part: "),
    ],
)
def test_what_cannot_be_an_answer_is_refused_with_its_place(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Script(given)


@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("delay_seconds", (NAN, "a", -1, float("inf"), None, True), "delay_seconds is a number of seconds from 0 to"),
        ("gap_seconds", (NAN, "a", -1, 1e9), "gap_seconds is a number of seconds from 0 to"),
        ("usage", (5, None, [1]), "usage is a dict of counts"),
        ("usage", ({"a": "b"}, {"a": -1}, {"a": 1.5}, {5: 5}), "usage holds counts from 0 on"),
        ("chunks", ("q", 0, -1, 1.5, True, None), "chunks is into how many pieces a stream cuts a text, 1 or more"),
        ("finish", (5,), "finish of an answer is a text, not 5"),
        ("finish_message", (5,), "finish_message of an answer is a text, not 5"),
        ("blocked", (5, True), "blocked of an answer is a text, not "),
        ("extra", (5, [5], None), "extra is given as a dict"),
        ("extra", ({"avgLogprobs": NAN},), "which has no nan; give a text or None in the extra"),
        ("documents", (5, "x", {}), "documents is a tuple of dicts"),
        ("chunk", (5,), "has no chunk; it has finish, .*chunks"),
        ("parts", ((),), "has no parts; it has finish"),
    ],
)
def test_an_answer_that_cannot_be_is_refused_where_it_is_made(option: str, wrong: tuple[Any, ...], words: str) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=words):
            answer("x", **{option: value})


def test_an_answer_in_the_words_of_the_api_is_made_of_dicts() -> None:
    for wrong in ("x", ("x",), 5, ({"text": 5},)):
        with pytest.raises(ConfigError, match=r"dicts? in the API's own names|the text of a part"):
            Answer(parts=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="call takes the name of a function, then its arguments, not 5"):
        call(5)  # type: ignore[arg-type]


def test_a_rule_takes_whatever_reads_like_an_answer() -> None:
    rules = [Rule(When(says="one"), "One."), Rule(When(says="two"), call("f", x=1)), Rule(When(), ["a", "b"])]
    assert [rule.answer for rule in rules] == [answer("One."), answer(call("f", x=1)), answer("a", "b")]
    with LocalGemini(rules) as server:
        assert text(ask(server.url, {"contents": [user("one")]})) == "One."
        assert ask(server.url, {**WITH_TOOLS, "contents": [user("two")]}).parts[0]["functionCall"]["args"] == {"x": 1}
        assert text(ask(server.url, HI)) == "ab"


def test_whoever_answers_may_say_it_plainly() -> None:
    class Plain:
        def answer(self, conversation: Conversation) -> str:
            return "Plain."

    class Later:
        async def answer(self, conversation: Conversation) -> list[Any]:
            return ["La", "ter."]

    class Wrong:
        def answer(self, conversation: Conversation) -> int:
            return 5

    with LocalGemini(Plain()) as plain, LocalGemini(Later()) as later, LocalGemini(Wrong()) as wrong:
        assert text(ask(plain.url, HI)) == "Plain."
        assert text(ask(later.url, HI)) == "Later."
        assert ask(wrong.url, HI).words == "ConfigError: an answer is made of words and parts, not of int"


def test_what_is_signed_is_what_goes_out() -> None:
    unchecked = Answer(parts=(call("f", x=NAN, y=[NAN, 1]),))
    with LocalGemini([unchecked, "Done."]) as server:
        made = ask(server.url, WITH_TOOLS).parts[0]
        going_on = [user("Hi."), model(made), user(result("f", id=made["functionCall"]["id"]))]
        assert text(ask(server.url, {**WITH_TOOLS, "contents": going_on})) == "Done."


@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("says", (5, b"x"), "says of a When is a text, not "),
        ("says", ("(", "[z-a]"), "is no regular expression"),
        ("system", (5,), "system of a When is a text, not 5"),
        ("model", (5,), "model of a When is a text, not 5"),
        ("step", ("x", -1, 1.5, True), "step of a When is how many turns the model has had, 0 or more, not "),
        ("results", ("f", 5, [5]), "results of a When is a tuple of names of functions"),
        ("functions", ("f", 5, None, (5,)), "functions of a When is a tuple of names of functions"),
    ],
)
def test_a_condition_that_can_never_hold_is_refused(option: str, wrong: tuple[Any, ...], words: str) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=words):
            When(**{option: value})


def test_a_rule_has_conditions_and_an_answer() -> None:
    assert When(results=["f"], functions=["g"]) == When(results=("f",), functions=("g",))  # type: ignore[arg-type]
    for wrong in (5, None, {"says": "x"}, When):
        with pytest.raises(ConfigError, match="a rule begins with its conditions, as When"):
            Rule(wrong, "x")  # type: ignore[arg-type]
    for other in (5, None, lambda _: "x"):
        with pytest.raises(ConfigError, match="an answer is made of words and parts, not of"):
            Rule(When(), other)  # type: ignore[arg-type]


class Weather(PartsProvider):
    """A model that calls the first tool and then says what came of it."""

    model = "weather"

    def __init__(self) -> None:
        self.asked: list[ModelRequest] = []

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked.append(request)
        last = request.history.messages[-1]
        if "fail" in last.text:
            raise RateLimited("too much", status=429)
        parts: tuple[Part, ...] = (
            (Text(f"It is {last.results[0].value}."),)
            if last.results
            else (
                Text("Let me see."),
                ToolCall("local", request.config.tools[0].name, {"city": "Oslo"}),
            )
        )
        yield ModelResponse(Message("model", parts), FinishReason.END, usage=Usage(input=3, output=4))


def test_a_provider_may_be_the_model() -> None:
    provider = Weather()
    declaration = {"name": "get_weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}
    setup: dict[str, Any] = {
        "tools": tools(declaration),
        "systemInstruction": user("Be brief."),
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"maxOutputTokens": 50, "responseMimeType": "application/json"},
    }
    with LocalGemini(model=provider) as server:
        documents = events(stream(server.url, {**setup, "contents": [user("Hi.")]}))
        last = documents[-1]["candidates"][0]
        called = last["content"]["parts"][0]
        assert (called["functionCall"]["name"], last["finishReason"]) == ("get_weather", "STOP")
        said = [part for one in documents for part in one["candidates"][0]["content"]["parts"]]
        answered = result("get_weather", id=called["functionCall"]["id"])
        reply = ask(server.url, {**setup, "contents": [user("Hi."), model(*said), user(answered)]})
        assert text(reply) == "It is 1."
        assert reply.json["usageMetadata"]["promptTokenCount"] == 3
        failed = ask(server.url, {"contents": [user("fail")]})
        assert (failed.status, failed.words) == (429, "too much")
    asked = provider.asked[1]
    assert asked.config.system == "Be brief."
    assert asked.config.tools[0].parameters["properties"]["city"]["type"] == "string"  # type: ignore[union-attr, index]
    assert asked.config.settings.max_tokens == 50
    assert asked.config.output is not None
    assert asked.config.tool_choice is not None
    assert [message.role for message in asked.history] == ["user", "model", "user"]
    assert asked.history.messages[2].results[0].id == asked.history.messages[1].calls[0].id


def test_the_offline_model_answers_through_it() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    declaration = {"name": "get_weather", "description": "The weather in a city.", "parametersJsonSchema": schema}
    asked = {"contents": [user("Get the weather in Oslo.")], "tools": tools(declaration)}
    with LocalGemini(model=Offline()) as server:
        last = events(stream(server.url, asked))[-1]["candidates"][0]
    assert last["finishReason"] == "STOP"
    assert last["content"]["parts"][0]["functionCall"]["args"] == {"city": "Oslo"}
    assert last["content"]["parts"][0]["thoughtSignature"]
