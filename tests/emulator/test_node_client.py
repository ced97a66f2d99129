"""The official JavaScript client works with the emulator unchanged, if Node and the package are installed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from midspan.emulator import LocalGemini, answer, call
from tests.bounds import BOUND

NODE = shutil.which("node")
MODULES = os.environ.get("MIDSPAN_NODE_MODULES", "")
PACKAGE = Path(MODULES) / "@google" / "genai"

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not MODULES or not PACKAGE.is_dir(), reason="MIDSPAN_NODE_MODULES is not a directory with @google/genai"
    ),
]

PROGRAM = """
import { createRequire } from "node:module";
const require = createRequire(process.env.MIDSPAN_NODE_MODULES + "/");
const { GoogleGenAI, Type, ApiError } = require("@google/genai");
const ai = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: process.env.SERVER } });
const model = "gemini-3.8-flash";
const declaration = {
  name: "get_weather",
  parameters: { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ["city"] },
};
const config = { tools: [{ functionDeclarations: [declaration] }] };
const seen = {};
const first = await ai.models.generateContent({ model, contents: "Weather?", config });
const [call] = first.functionCalls;
seen.called = [call.name, call.args, typeof call.id];
const contents = [
  { role: "user", parts: [{ text: "Weather?" }] },
  first.candidates[0].content,
  { role: "user", parts: [{ functionResponse: { id: call.id, name: call.name, response: { result: 5 } } }] },
];
seen.answer = (await ai.models.generateContent({ model, contents, config })).text;
seen.streamed = "";
const stream = await ai.models.generateContentStream({ model, contents, config });
for await (const chunk of stream) seen.streamed += chunk.text;
const callable = {
  tool: async () => ({ functionDeclarations: [declaration] }),
  callTool: async (calls) => calls.map((call) => ({ functionResponse: { name: call.name, response: { result: 5 } } })),
};
seen.automatic = "";
const automatic = await ai.models.generateContentStream({ model, contents: "Weather?", config: { tools: [callable] } });
for await (const chunk of automatic) seen.automatic += chunk.text ?? "";
const chat = ai.chats.create({ model: "gemini-2.5-flash" });
seen.chat = (await chat.sendMessage({ message: "Hello." })).candidates[0].finishReason;
seen.tokens = (await ai.models.countTokens({ model, contents: "Hello there." })).totalTokens;
const cache = await ai.caches.create({
  model: "gemini-3.5-flash", config: { systemInstruction: "You know much. ".repeat(400), ttl: "60s" },
});
seen.cached = (await ai.caches.get({ name: cache.name })).name === cache.name;
await ai.caches.delete({ name: cache.name });
try {
  await ai.models.generateContent({ model, contents: contents.slice(0, 2), config });
} catch (error) {
  seen.rejected = [error instanceof ApiError, error.status, error.message.includes("function response parts")];
}
try {
  await ai.models.generateContent({ model: "gemini-nonexistent", contents: "Hi." });
} catch (error) {
  seen.unknown = error.status;
}
console.log(JSON.stringify(seen));
"""


def test_it_generates_streams_chats_counts_caches_and_reports_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM)
    script = [answer("Let me see. ", call("get_weather", city="Oslo")), "It is 5 degrees."]
    with LocalGemini(script) as server:
        environment = {**os.environ, "SERVER": server.url, "MIDSPAN_NODE_MODULES": str(Path(MODULES).resolve())}
        assert NODE is not None
        done = subprocess.run([NODE, str(program)], env=environment, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "called": ["get_weather", {"city": "Oslo"}, "string"],
        "answer": "It is 5 degrees.",
        "streamed": "It is 5 degrees.",
        "automatic": "Let me see. It is 5 degrees.",
        "chat": "UNEXPECTED_TOOL_CALL",
        "tokens": 4,
        "cached": True,
        "rejected": [True, 400, True],
        "unknown": 404,
    }
