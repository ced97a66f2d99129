"""What the emulator costs: CPU a turn beside the shared fake server, and how checking grows with the history.

`python benchmarks/emulator.py [SERVER.py]`: the fake server of ../shared/bench, or the one that is named, answers from
canned bytes and checks nothing. Both get the same conversations of ten turns, by turns, over the same kind of client.
Checking is measured on histories that were never seen and on ones that grow by a turn, as in a conversation.
Exits 1 where a budget is broken. The fake server runs on uvloop where PYTHON_WITH_UVLOOP names a Python that has it.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from midspan.emulator.checking import Checker, Target
from midspan.emulator.quick import forget_turns

CPU_BUDGET = 4.0
GROWTH_BUDGET = 1.5
"""How much more a content may cost in a history that is eight times as long."""
TURNS = 10
ROUNDS = 9
CONVERSATIONS = 60
ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT.parent / "shared" / "bench" / "server.py"
SIGNATURE = "CpQBAR/MhbZ0" + "k3v9Zx4Q" * 22 + "AA=="
HEAD = "POST {} HTTP/1.1\r\nHost: local\r\nx-goog-api-key: k\r\nContent-Length: {}\r\n\r\n"


def main(arguments: list[str]) -> int:
    floor = Path(arguments[0]) if arguments else FLOOR
    broken = check_growth()
    if floor.is_file():
        broken |= compare(floor)
    else:
        print(f"no fake server at {floor}; give its path to compare with it")
    return int(broken)


def compare(floor: Path) -> bool:
    """Rounds of both servers, interleaved, so that they see the same machine."""
    python = os.environ.get("PYTHON_WITH_UVLOOP")
    commands = {
        "floor": [python, str(floor), "0"] if python else [sys.executable, "-c", WITHOUT_UVLOOP, str(floor), "0"],
        "emulator": [sys.executable, __file__, "--serve"],
    }
    paths = {
        "floor": "/v1beta/models/gemini-2.5-flash-t10p1:generateContent",
        "emulator": "/v1beta/models/gemini-3.8-flash:generateContent",
    }
    servers = {name: subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for name, command in commands.items()}
    try:
        ports = {name: int(server.stdout.readline().split()[0]) for name, server in servers.items() if server.stdout}
        spent: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(ROUNDS + 1):
            for name, server in servers.items():
                before = cpu_seconds(server.pid)
                for conversation in range(CONVERSATIONS):
                    play(ports[name], paths[name], f"{number}-{conversation}")
                if number:  # the first round warms up
                    spent[name].append((cpu_seconds(server.pid) - before) / (CONVERSATIONS * (TURNS + 1)))
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
    microseconds = {name: statistics.median(values) * 1e6 for name, values in spent.items()}
    ratio = statistics.median(ours / theirs for ours, theirs in zip(spent["emulator"], spent["floor"], strict=True))
    print(
        f"turn: emulator {microseconds['emulator']:.0f} us, floor {microseconds['floor']:.0f} us"
        f"{'' if python else ' (without uvloop)'}, ratio {ratio:.2f} (budget {CPU_BUDGET})"
    )
    return ratio > CPU_BUDGET


WITHOUT_UVLOOP = """
import asyncio, runpy, sys, types
sys.modules["uvloop"] = types.SimpleNamespace(run=asyncio.run)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def serve() -> None:
    from midspan.emulator import LocalGemini, call

    script = [call("get_weather", location=f"City {turn}") for turn in range(TURNS)]
    with LocalGemini([*script, "It is 21 degrees and sunny."]) as server:
        print(server.url.rsplit(":", 1)[1], flush=True)
        time.sleep(3_600)


def play(port: int, path: str, name: str) -> None:
    """One conversation on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        contents: list[dict[str, Any]] = [says("user", {"text": f"What is the weather, {name}?"})]
        for turn in range(TURNS + 1):
            body = json.dumps(body_of(contents), separators=(",", ":")).encode()
            connection.sendall(HEAD.format(path, len(body)).encode() + body)
            receive(connection)
            contents += round_of(turn, name)


def receive(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, rest = data.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise SystemExit(f"refused: {data.decode(errors='replace')}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65_536)


def body_of(contents: list[dict[str, Any]]) -> dict[str, Any]:
    location = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    declared = [{"name": "get_weather", "description": "The weather at a place.", "parametersJsonSchema": location}]
    return {
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "You are helpful."}]},
        "tools": [{"functionDeclarations": declared}],
        "generationConfig": {"temperature": 0.2},
    }


def round_of(turn: int, name: str) -> list[dict[str, Any]]:
    id = f"fc_{turn}_{name}"
    call = {"name": "get_weather", "args": {"location": f"City {turn}"}, "id": id}
    result = {"name": "get_weather", "response": {"result": f"sunny, {turn} degrees"}, "id": id}
    return [
        says("model", {"functionCall": call, "thoughtSignature": SIGNATURE}),
        says("user", {"functionResponse": result}),
    ]


def says(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used; the kernel counts it in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def check_growth() -> bool:
    """Microseconds a turn of a short and of a long history: never seen before, and grown by one turn since then."""
    broken = False
    for name in ("new", "grown"):
        cost = {turns: checked(turns, seen=name == "grown") for turns in (50, 400)}
        growth = cost[400] / cost[50]
        print(
            f"checking, {name} history: {cost[50]:.2f} us a turn of 50, {cost[400]:.2f} us of 400, "
            f"growth {growth:.2f} (budget {GROWTH_BUDGET})"
        )
        broken |= growth > GROWTH_BUDGET
    return broken


def checked(turns: int, *, seen: bool) -> float:
    """The fastest of several rounds."""
    target = Target("gemini-3.8-flash")
    history = [says("user", {"text": "Hello."}), *(one for at in range(turns) for one in round_of(at, "x"))]
    before, after = (json.dumps(body_of(one), separators=(",", ":")).encode() for one in (history[:-2], history))
    times = []
    for _ in range(15):
        forget_turns()
        checker = Checker()
        if seen:
            checker.check(before, target)
        begun = time.process_time()
        checker.check(after, target)
        times.append(time.process_time() - begun)
    return min(times) / turns * 1e6


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main(sys.argv[1:]))
