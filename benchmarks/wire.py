"""What the Gemini wire costs beside the least that it could cost, in one run: ratios, and whether they hold.

Decoding: our `decode.response` beside msgspec's typed decoding of the same bytes into the same kind of Structs.
Encoding: our next request after 100 turns beside joining the same bytes. Exits 1 where a budget is broken.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import ToolResult
from midspan._types.specs import ToolSpec
from midspan.providers.gemini import decode, encode, wire
from midspan.providers.gemini.capabilities import capabilities_of

DECODE_BUDGET = 2.0
ENCODE_BUDGET = 3.0
TURNS = 100
CAPABILITIES = capabilities_of("gemini-3.8-flash")


def response(turn: int, text: str) -> bytes:
    """About 1.5 KB, printed as the server prints it: some text, a signed call, a second call, usage."""
    calls: list[dict[str, Any]] = [
        {
            "functionCall": {
                "name": "get_weather",
                "args": {"location": f"City {turn}", "days": 3, "units": "metric"},
                "id": f"fc_{turn}_0",
            },
            "thoughtSignature": "CpQBAR/MhbZ0" + "k3v9Zx4Q" * 22 + "AA==",
        },
        {"functionCall": {"name": "get_time", "args": {"zone": "Europe/Paris"}, "id": f"fc_{turn}_1"}},
    ]
    usage = {
        "promptTokenCount": 145,
        "candidatesTokenCount": 18,
        "totalTokenCount": 210,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 145}],
        "thoughtsTokenCount": 47,
    }
    candidate = {
        "content": {"parts": [{"text": text}, *calls], "role": "model"},
        "finishReason": "STOP",
        "index": 0,
    }
    envelope = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3.8-flash"}
    return json.dumps({**envelope, "responseId": "x3mUaPDbBfOVxN8P2aWo0Ag"}, indent=2).encode()


def fastest(work: dict[str, Callable[[], Any]], rounds: int, each: int) -> dict[str, float]:
    """Microseconds of CPU a call; the rounds interleaved, so that all see the same machine, and the median of them."""
    times: dict[str, list[float]] = {name: [] for name in work}
    gc.disable()
    for _ in range(rounds):
        for name, call in work.items():
            start = time.process_time_ns()
            for _ in range(each):
                call()
            times[name].append((time.process_time_ns() - start) / each / 1000)
        gc.collect()
    gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def decoding() -> tuple[float, float]:
    body = response(1, "Let me look that up for you. " * 8)
    typed = msgspec.json.Decoder(wire.GenerateContentResponse)
    took = fastest({"floor": lambda: typed.decode(body), "ours": lambda: decode.response(body)}, 21, 4000)
    print(f"decode a response of {len(body):,} bytes: {took['ours']:.2f} µs, typed msgspec {took['floor']:.2f} µs")
    return took["ours"], took["floor"]


def turn(number: int) -> tuple[Message, Message]:
    answer = decode.response(response(number, "")).message
    return answer, Message.user(*(ToolResult(call.id, call.name, {"temp_c": 21}) for call in answer.calls))


def encoding() -> tuple[float, float]:
    parameters = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    config = RequestConfig("gemini-3.8-flash", "Be brief.", (ToolSpec("get_weather", "The weather.", parameters),))
    history = History([Message.user("What is the weather in all the cities?")])
    for number in range(TURNS - 1):
        history = history.append(*turn(number))
    encode.request_body(ModelRequest(config, history), CAPABILITIES)
    last = turn(TURNS)
    pieces = [bytes(encode.encode_message(message, CAPABILITIES)) for message in history.append(*last)]

    def ours() -> bytes:
        return encode.request_body(ModelRequest(config, history.append(*last)), CAPABILITIES)

    took = fastest({"floor": lambda: b",".join(pieces), "ours": ours}, 21, 1000)
    size = len(ours())
    print(
        f"build the request of {size:,} bytes after {TURNS} turns: {took['ours']:.2f} µs, join {took['floor']:.2f} µs"
    )
    return took["ours"], took["floor"]


def main() -> int:
    ratios = {"decode": (decoding(), DECODE_BUDGET), "encode": (encoding(), ENCODE_BUDGET)}
    line = [f"{name} {ours / floor:.2f}x ({budget})" for name, ((ours, floor), budget) in ratios.items()]
    print(" ".join(line))
    return int(any(ours / floor > budget for (ours, floor), budget in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
