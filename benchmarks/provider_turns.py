"""CPU per turn of providers, as ratios to Gemini's: `python benchmarks/turns.py --provider anthropic openai …`.

Each turn of a conversation is a request, a call of a small tool, and its result. The server is another process that
answers with fixed bytes, so the CPU time of this process is that of the client. Exits 1 if a ratio is above its budget.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

BUDGET = 1.5
PROVIDERS = ["anthropic", "openai", "openai_responses"]
ROUNDS = int(os.environ.get("ROUNDS", "7"))
TURNS = 20
CONVERSATIONS = 15
_TEXT = "It is sunny."
Json = dict[str, Any]


def _gemini(part: Json) -> Json:
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14},
    }


def _anthropic(block: Json, reason: str) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": reason,
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }


def _chat(message: Json, reason: str) -> Json:
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    }


def _responses(item: Json) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [item],
        "usage": {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14},
    }


def _answers() -> dict[str, tuple[Json, Json]]:
    """By provider, a response with a call, and one with the answer."""
    name, arguments, text = "get_weather", {"city": "Oslo"}, json.dumps({"city": "Oslo"})
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}}
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": text}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": _TEXT}]}
    return {
        "gemini": (
            _gemini({"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "c2ln"}),
            _gemini({"text": _TEXT}),
        ),
        "anthropic": (
            _anthropic({"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}, "tool_use"),
            _anthropic({"type": "text", "text": _TEXT}, "end_turn"),
        ),
        "openai": (_chat({"content": None, "tool_calls": [call]}, "tool_calls"), _chat({"content": _TEXT}, "stop")),
        "openai_responses": (_responses(item), _responses(said)),
    }


async def _serve() -> None:
    """Answer the first TURNS requests of a connection with a call and the next one with text, again and again."""
    answers = {name: [_http(answer) for answer in pair] for name, pair in _answers().items()}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                name = head.split(b" ", 2)[1].split(b"/")[1].decode()
                served += 1
                writer.write(answers[name][served % (TURNS + 1) == 0])
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def _http(document: Any) -> bytes:
    body = json.dumps(document).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


def _provider(name: str, url: str) -> Any:
    from midspan import Gemini
    from midspan.providers import Anthropic, OpenAI, OpenAIResponses

    match name:
        case "gemini":
            return Gemini("gemini-3.8-flash", api_key="k", base_url=url)
        case "anthropic":
            return Anthropic("claude-sonnet-5-5", api_key="k", base_url=url)
        case "openai":
            return OpenAI("gpt-5.5", api_key="k", base_url=url)
    return OpenAIResponses("gpt-5.5", api_key="k", base_url=url)


async def _microseconds_per_turn(name: str, port: int) -> float:
    from midspan import Agent, Limits

    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    agent = Agent(
        _provider(name, f"http://127.0.0.1:{port}/{name}"),
        [get_weather],
        limits=Limits(max_turns=None, max_repeats=None),
    )
    await agent.run("Hi")
    started = time.process_time()
    for _ in range(CONVERSATIONS):
        await agent.run("What is the weather like in Oslo?")
    return (time.process_time() - started) / (CONVERSATIONS * (TURNS + 1)) * 1e6


async def main(names: list[str]) -> int:
    """Measure these providers in turn, ROUNDS times, and print the ratios to Gemini."""
    server = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    samples: dict[str, list[float]] = {}
    try:
        for _ in range(ROUNDS):
            for name in ("gemini", *names):
                samples.setdefault(name, []).append(await _microseconds_per_turn(name, port))
    finally:
        server.kill()
        await server.wait()
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, value in medians.items():
        ratio = value / medians["gemini"]
        print(f"{name}: {value:.0f} µs a turn, {ratio:.2f}x ({BUDGET}){'  OVER BUDGET' if ratio > BUDGET else ''}")
    return int(any(value / medians["gemini"] > BUDGET for value in medians.values()))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(_serve())
    else:
        sys.exit(asyncio.run(main(sys.argv[1:] or PROVIDERS)))
