"""The CPU time of the emulator's checks, per turn of a short and of a long history: python benchmarks/emulator.py

Exits 1 if a turn costs more in a longer history.
"""

import json
import sys
import time
from typing import Any

from midspan.emulator.gemini.check import check
from midspan.emulator.gemini.models import ModelRules

GROWTH_BUDGET = 1.5
"""How much more a turn may cost in a history that is eight times as long."""
ROUNDS = 15
SIGNATURE = "CpQBAR/MhbZ0" + "k3v9Zx4Q" * 22 + "AA=="


def main() -> int:
    cost = {turns: check_microseconds(turns) for turns in (50, 400)}
    growth = cost[400] / cost[50]
    print(
        f"checks: {cost[50]:.1f} us per turn with 50 turns, {cost[400]:.1f} us with 400, growth {growth:.2f} "
        f"(budget {GROWTH_BUDGET})"
    )
    return int(growth > GROWTH_BUDGET)


def check_microseconds(turns: int) -> float:
    """Return the time per turn in the fastest of several rounds."""
    rules = ModelRules("gemini-3.8-flash")
    body = json.dumps(request(turns), separators=(",", ":")).encode()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        check(body, rules)
        times.append(time.process_time() - start)
    return min(times) / turns * 1e6


def request(turns: int) -> dict[str, Any]:
    location = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    declared = [{"name": "get_weather", "description": "The weather at a place.", "parametersJsonSchema": location}]
    return {
        "contents": [content("user", {"text": "Hello."}), *(item for turn in range(turns) for item in tool_turn(turn))],
        "systemInstruction": {"parts": [{"text": "You are helpful."}]},
        "tools": [{"functionDeclarations": declared}],
        "generationConfig": {"temperature": 0.2},
    }


def tool_turn(turn: int) -> list[dict[str, Any]]:
    call = {"name": "get_weather", "args": {"location": f"City {turn}"}, "id": f"fc_{turn}"}
    result = {"name": "get_weather", "response": {"result": f"sunny, {turn} degrees"}, "id": f"fc_{turn}"}
    return [
        content("model", {"functionCall": call, "thoughtSignature": SIGNATURE}),
        content("user", {"functionResponse": result}),
    ]


def content(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


if __name__ == "__main__":
    sys.exit(main())
