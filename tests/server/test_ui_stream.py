"""The `ai` package of npm reads the UI message stream, as `useChat` does."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, ToolError, tool
from midspan.errors import ServerError
from midspan.messages import Text, Thought, ToolCall
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.server.serving import add, data_lines, pausing_agent, serving
from tests.server.test_runs import Gate

NODE = shutil.which("node")
MODULES = os.environ.get("MIDSPAN_NODE_MODULES", "")
needs_node = (
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not MODULES or not (Path(MODULES) / "ai").is_dir(), reason="MIDSPAN_NODE_MODULES is not a directory with ai"
    ),
)

PROGRAM = """
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const require = createRequire(process.env.MIDSPAN_NODE_MODULES + "/");
const { DefaultChatTransport, readUIMessageStream } = await import(pathToFileURL(require.resolve("ai")).href);
const transport = new DefaultChatTransport({ api: process.env.SERVER + "/api/v1/ui/chat" });
const messages = [];
const last = async (stream) => {
  let message;
  for await (const state of readUIMessageStream({ stream, terminateOnError: true })) message = state;
  return message;
};
const ask = async (text, trigger = "submit-message") => {
  const parts = [{ type: "text", text }];
  if (trigger === "submit-message") messages.push({ id: "u" + messages.length, role: "user", parts });
  const stream = await transport.sendMessages({ chatId: "chat-1", messages, trigger, messageId: undefined });
  const message = await last(stream);
  if (trigger === "submit-message") messages.push(message);
  return message;
};
const seen = {};
seen.first = await ask("1 + 2?");
seen.second = await ask("Again?");
seen.regenerated = await ask("", "regenerate-message");
seen.idle = await transport.reconnectToStream({ chatId: "chat-1" });
try {
  seen.failed = await ask("fail");
} catch (error) {
  seen.error = error.message;
}
console.log(JSON.stringify(seen));
"""


def respond(request: Any) -> Any:
    last = request.history[-1]
    prompts = [message.text for message in request.history if message.role == "user" and not message.results]
    if prompts[-1] == "fail":
        return ServerError("/secret")
    if last.results:
        return [Thought("Hm."), Text("It is "), Text(f"{last.results[0].value}, after {len(prompts)} prompts.")]
    return [Text("Let me see."), ToolCall("c", "add", {"a": 1, "b": 2}), ToolCall("d", "broken", {})]


@tool
def broken() -> None:
    """Fail."""
    raise ToolError("it is broken")


@pytest.mark.requirement("H-06")
@pytest.mark.parametrize("_", [pytest.param(0, marks=needs_node)])
def test_official_package_reads_texts_reasoning_tools_and_errors(tmp_path: Path, _: int) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM)
    with serving(Agent(ScriptedProvider(respond), [add, broken])) as server:
        environment = {**os.environ, "SERVER": server.url, "MIDSPAN_NODE_MODULES": str(Path(MODULES).resolve())}
        assert NODE is not None
        done = subprocess.run([NODE, str(program)], env=environment, capture_output=True, text=True, timeout=BOUND)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        session = server.get("/api/v1/sessions/chat-1").json()
    first = seen["first"]
    assert first["role"] == "assistant"
    parts = [
        {key: part[key] for key in part if key not in ("id", "toolCallId", "providerExecuted")}
        for part in first["parts"]
    ]
    assert parts == [
        {"type": "step-start"},
        {"type": "text", "text": "Let me see.", "state": "done"},
        {
            "type": "dynamic-tool",
            "toolName": "add",
            "state": "output-available",
            "input": {"a": 1, "b": 2},
            "output": 3,
        },
        {
            "type": "dynamic-tool",
            "toolName": "broken",
            "state": "output-error",
            "input": {},
            "errorText": "it is broken",
        },
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.", "state": "done"},
        {"type": "text", "text": "It is 3, after 1 prompts.", "state": "done"},
    ]
    assert len({part["toolCallId"] for part in first["parts"] if "toolCallId" in part}) == 2
    assert seen["second"]["parts"][-1]["text"] == "It is 3, after 2 prompts."
    assert seen["regenerated"]["parts"][-1]["text"] == "It is 3, after 2 prompts."
    assert seen["idle"] is None
    assert seen["error"] == "the model's service failed"
    assert session["runs"] == 4


def test_stream_has_the_header_and_the_end_that_the_protocol_demands() -> None:
    body = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "1 + 2?"}]}]}
    with serving(Agent(ScriptedProvider(respond), [add, broken])) as server:
        response = server.post("/api/v1/ui/chat", body)
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert response.text.endswith("data: [DONE]\n\n")
        kinds = [chunk["type"] for chunk in data_lines(response.text)]
        assert (kinds[0], kinds[-1]) == ("start", "finish")
        assert kinds.count("start-step") == kinds.count("finish-step") == 2


def test_text_of_a_model_that_paused_is_streamed_once() -> None:
    body = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "1 + 2?"}]}]}
    for agent, texts in (
        (pausing_agent(), ["One ", "two ", "three."]),
        (pausing_agent(ToolCall("c1", "add", {"a": 1, "b": 2})), ["One ", "two ", "three."]),
    ):
        with serving(agent) as server:
            chunks = data_lines(server.post("/api/v1/ui/chat", body).text)
            assert [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"] == texts


def test_running_stream_can_be_resumed() -> None:
    gate = Gate()
    body = {"id": "chat-1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Wait."}]}]}
    with serving(gate.agent()) as server:
        with server.client.stream("POST", "/api/v1/ui/chat", json=body) as response:
            next(response.iter_lines())
            assert gate.entered.wait(BOUND)
        with server.client.stream("GET", "/api/v1/ui/chat/chat-1/stream") as response:
            lines = response.iter_lines()
            start = next(lines)
            gate.open.set()
            rest = "\n".join([start, *lines])
        assert [chunk["type"] for chunk in data_lines(rest)][-1] == "finish"
        assert server.get("/api/v1/ui/chat/chat-1/stream").status_code == 204


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "parts": [{"type": "text", "text": "Hi."}]}],
        [{"role": "user", "parts": [{"type": "text", "text": " "}]}],
        [{"role": "user", "parts": [{"type": "file", "url": "file:///etc/passwd", "mediaType": "text/plain"}]}],
        [{"role": "user", "parts": [{"type": "file", "url": "data:", "mediaType": "image/png"}]}],
        [{"role": "user", "parts": [{"type": "file", "url": "data:image/png;base64,@@", "mediaType": "image/png"}]}],
        [{"role": "robot", "parts": []}],
    ],
)
def test_chat_without_a_prompt_is_refused(messages: Any) -> None:
    with serving(Agent(ScriptedProvider(respond), [add, broken])) as server:
        assert server.post("/api/v1/ui/chat", {"messages": messages}).status_code == 400
