"""POST /api/v1/chat, sessions, tools, models and health."""

from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Limits, RunContext, SqliteJournal, from_json, tool
from midspan.errors import ConfigError, QuotaExhaustedError, RateLimitError, ServerError
from midspan.messages import Text, ToolCall
from midspan.server import create_app
from midspan.testing import ScriptedProvider
from tests.server.serving import add, data_lines, serving, sum_agent, sums


@pytest.mark.requirement("S2-12", "S2-13")
def test_answer_has_the_calls_their_results_and_metadata() -> None:
    with serving(sum_agent()) as server:
        response = server.post("/api/v1/chat", {"prompt": "1 + 2?"})
        document = response.json()
        assert response.status_code == 200
        assert document["response"] == "It is 3."
        assert document["tool_calls"] == [{"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}]
        assert document["tool_results"] == [{"tool_call_id": "c1", "name": "add", "content": 3, "is_error": False}]
        metadata = document["metadata"]
        assert {name: metadata[name] for name in ("iterations", "finish_reason", "tools_available", "max_reached")} == {
            "iterations": 2,
            "finish_reason": "end",
            "tools_available": 1,
            "max_reached": False,
        }
        assert not [name for name in metadata if name.startswith("cache")]  # there is no cache of results yet


@pytest.mark.requirement("S2-13", "H-02")
def test_provider_and_model_of_a_request_are_honoured_within_the_allowed_ones() -> None:
    with serving(Agent(sums(), [add]), provider="scripted", models=["offline"]) as server:
        names = [model["id"] for model in server.get("/api/v1/models").json()["models"]]
        assert names == ["scripted:scripted", "offline"]
        for choice in ({}, {"provider": "scripted"}, {"model": "scripted"}, {"model": "scripted:scripted"}):
            answer = server.post("/api/v1/chat", {"prompt": "1 + 2?", **choice}).json()
            assert (answer["response"], answer["metadata"]["provider"]) == ("It is 3.", "scripted")
        offline = server.post("/api/v1/chat", {"prompt": "1 + 2?", "provider": "offline"}).json()
        assert offline["metadata"]["model"] == "offline"
        refused = server.post("/api/v1/chat", {"prompt": "Hi.", "provider": "gemini"})
        assert refused.status_code == 404
        assert "'gemini' is not available here; available: scripted:scripted, offline" in refused.json()["message"]


def test_names_of_models_must_be_known() -> None:
    with pytest.raises(ConfigError, match="unknown model 'nonsense'"):
        create_app(sum_agent(), models=["nonsense"])


@pytest.mark.requirement("S2-13")
@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b'{"prompt": ""}', 400, "prompt must not be empty"),
        (b'{"prompt": " \\n "}', 400, "prompt must not be empty"),
        (b'{"prompt": 5}', 400, "prompt: expected string, got integer 5"),
        (b"{}", 400, "prompt: is required but missing; expected string"),
        (b'{"prompt": "a", "promt": 1}', 400, "promt: is not a property of this object; did you mean prompt?"),
        (b'{"prompt": "a", "session_id": "../x"}', 400, "session_id: expected text that matches"),
        (b'{"prompt": "a", "session_id": "x\\n"}', 400, "session_id: expected text that matches"),
        (b'{"prompt": "a", "stream": 1, "context": []}', 400, "context: expected object or null, got []"),
        (b"null", 400, "expected object, got null"),
        (b'{"prompt": "\\ud800"}', 400, "it is not JSON: "),
        (b'{"prompt": "a", "context": {"x": NaN}}', 400, "it is not JSON: "),
        (b'{"prompt": "a", "context": {"x": 1%s}}' % (b"0" * 5_000), 400, "it is not JSON: "),
        (b'{"prompt":\n "a" 5}', 400, "it is not JSON: "),
        (b'{"prompt": "\xff"}', 400, "it is not JSON: "),
        (b"[" * 100_000, 400, "it is not JSON: "),
        (b"", 400, "it is not JSON: "),
    ],
)
def test_bad_input_gets_one_clear_sentence(body: bytes, status: int, problem: str) -> None:
    with serving(sum_agent()) as server:
        response = server.client.post("/api/v1/chat", content=body, headers={"Content-Type": "application/json"})
        document = response.json()
        assert (response.status_code, document["error"], document["code"]) == (status, "invalid_request", status)
        assert problem in document["message"]


def test_body_must_be_json() -> None:
    with serving(sum_agent()) as server:
        assert server.client.post("/api/v1/chat", data={"prompt": "a"}).status_code == 415


@pytest.mark.requirement("S2-13", "H-01")
def test_limit_is_answered_with_a_polite_text() -> None:
    model = ScriptedProvider(lambda request: ToolCall("c", "add", {"a": 1, "b": len(request.history)}))
    with serving(Agent(model, [add], limits=Limits(max_turns=3))) as server:
        document = server.post("/api/v1/chat", {"prompt": "Go on."}).json()
        assert document["response"].startswith("Maximum tool execution iterations reached.")
        assert document["metadata"]["max_reached"]
        assert document["metadata"]["limit"] == "max_turns"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ServerError("/secret/path broke"), 502, "the model's service failed"),
        (QuotaExhaustedError("key abc"), 502, "the quota of this server at the model's service is used up"),
        (RateLimitError("slow down"), 503, "the model's service gets too many requests; try again later"),
        (ConfigError("/home/ann/key is missing"), 500, "the server could not process the request"),
        (ValueError("a trace"), 502, "the model's service failed"),
    ],
)
def test_failed_run_is_an_error_without_its_details(error: Exception, status: int, message: str) -> None:
    with serving(Agent(ScriptedProvider(lambda _: error))) as server:
        response = server.post("/api/v1/chat", {"prompt": "Hi."})
        assert (response.status_code, response.json()["error"]) == (status, "processing_error")
        assert response.json()["message"].startswith(message)
        [run] = server.get("/api/v1/runs").json()["runs"]
        assert run["state"] == "failed"
        streamed = server.post("/api/v1/chat", {"prompt": "Hi.", "stream": True})
        assert data_lines(streamed.text)[-1]["error"]["message"].startswith(message)
        for text in (response.text, str(run), streamed.text):
            assert str(error) not in text


def test_context_reaches_the_tools_and_not_the_model() -> None:
    @tool
    def who(context: RunContext[dict[str, Any]]) -> str:
        """Say who asks."""
        return context.user["name"]

    model = ScriptedProvider([ToolCall("c", "who", {}), "You are Ann."])
    with serving(Agent(model, [who])) as server:
        document = server.post("/api/v1/chat", {"prompt": "Who am I?", "context": {"name": "Ann"}}).json()
        assert document["tool_results"][0]["content"] == "Ann"
        assert "Ann" not in str(model.requests[0])


def test_session_is_continued_listed_exported_and_deleted(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda request: Text(f"{len(request.history)} messages"))
    with serving(Agent(model), journal=SqliteJournal(tmp_path / "j.db")) as server:
        first = server.post("/api/v1/chat", {"prompt": "One."}).json()
        session = first["metadata"]["session_id"]
        second = server.post("/api/v1/chat", {"prompt": "Two.", "session_id": session}).json()
        assert (first["response"], second["response"]) == ("1 messages", "3 messages")
        server.post("/api/v1/chat", {"prompt": "Else.", "session_id": "mine"})
        listed = server.get("/api/v1/sessions").json()
        assert [(item["session_id"], item["runs"]) for item in listed["sessions"]] == [("mine", 1), (session, 2)]
        page = server.get("/api/v1/sessions?limit=1").json()
        rest = server.get(f"/api/v1/sessions?limit=1&after={page['next']}").json()
        assert [page["sessions"][0]["session_id"], rest["sessions"][0]["session_id"]] == ["mine", session]
        messages = server.get(f"/api/v1/sessions/{session}").json()["messages"]
        assert [message["parts"][0]["text"] for message in messages] == ["One.", "1 messages", "Two.", "3 messages"]
        exported = from_json(server.get(f"/api/v1/sessions/{session}/export").content, "messages")
        assert [message.text for message in exported] == ["One.", "1 messages", "Two.", "3 messages"]
        assert len(server.get(f"/api/v1/runs?session_id={session}").json()["runs"]) == 2
        assert server.client.delete(f"/api/v1/sessions/{session}").status_code == 204
        for response in (
            server.get(f"/api/v1/sessions/{session}"),
            server.get(f"/api/v1/sessions/{session}/export"),
            server.client.delete(f"/api/v1/sessions/{session}"),
        ):
            assert response.status_code == 404
        assert server.post("/api/v1/chat", {"prompt": "New.", "session_id": session}).json()["response"] == "1 messages"


def test_failed_prompt_of_a_session_can_be_asked_again() -> None:
    turns = iter([Text("Hello."), ServerError("down"), Text("Now.")])
    model = ScriptedProvider(lambda request: next(turns))
    with serving(Agent(model)) as server:
        for prompt, status in (("One.", 200), ("Two.", 502), ("Two.", 200)):
            response = server.post("/api/v1/chat", {"prompt": prompt, "session_id": "s"})
            assert response.status_code == status
        assert [message.text for message in model.requests[-1].history] == ["One.", "Hello.", "Two."]


@pytest.mark.requirement("S2-13")
def test_tools_and_health_are_shown() -> None:
    with serving(sum_agent()) as server:
        [spec] = server.get("/api/v1/tools").json()["tools"]
        assert (spec["name"], spec["description"], spec["parameters"]["required"]) == (
            "add",
            "Add two numbers.",
            ["a", "b"],
        )
        health = server.get("/api/v1/health").json()
        assert (health["status"], health["mcp_server_ready"]) == ("healthy", True)
        assert server.get("/health").json() == {"status": "healthy"}


def test_source_that_fails_makes_the_server_degraded() -> None:
    from midspan.tools import ToolListing, ToolSource

    class Broken(ToolSource):
        async def list_tools(self) -> ToolListing:
            raise RuntimeError("down")

        async def call(self, call: Any, context: Any) -> Any:
            raise AssertionError

    with serving(Agent(sums(), [add, Broken()])) as server:
        health = server.get("/api/v1/health").json()
        assert (health["status"], health["mcp_server_ready"], health["services"]["Broken"]) == (
            "degraded",
            False,
            "unavailable",
        )
