"""Tools for worker processes, well-behaved and hostile ones.

`port` is that of a UDP counter on the loopback interface: each datagram moves it.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from midspan import RunContext, tool
from midspan.messages import Text

state: dict[str, int] = {}

MOVE = """
import signal, socket, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
counter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    counter.sendto(b"child", ("127.0.0.1", int(sys.argv[1])))
    time.sleep(0.005)
"""


def move(port: int, text: str = "tool") -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as counter:
        counter.sendto(text.encode(), ("127.0.0.1", port))


def keep_moving(port: int) -> None:
    while True:
        move(port)
        time.sleep(0.005)


@tool(timeout=2)
def busy_loop(port: int) -> None:
    """Never returns."""
    while True:
        move(port)


@tool(timeout=2)
def hold_gil(port: int, seconds: int = 60) -> None:
    """Sleeps in C without releasing the interpreter's lock, while a child moves the counter."""
    subprocess.Popen([sys.executable, "-c", MOVE, str(port)])
    ctypes.PyDLL(None).sleep(seconds)
    move(port, "after")


@tool(timeout=2)
def hung_socket(port: int) -> bytes:
    """Waits for a server that never answers."""
    threading.Thread(target=keep_moving, args=(port,), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        return client.recv(1)


@tool(timeout=2)
def deaf_child(port: int) -> int:
    """Waits for a child that ignores SIGTERM."""
    return subprocess.call([sys.executable, "-c", MOVE, str(port), "deaf"])


@tool(timeout=2)
def daemons(port: int) -> None:
    """Starts grandchildren that left the process group and whose parents have ended."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                os.setsid()
                keep_moving(port)
            os._exit(0)
    time.sleep(60)


HOSTILE = ["busy_loop", "hold_gil", "hung_socket", "deaf_child", "daemons"]


def count(name: str = "n") -> int:
    """Counts in the state of the process."""
    state[name] = state.get(name, 0) + 1
    return state[name]


def pid() -> int:
    """The number of the process."""
    return os.getpid()


def modules() -> list[str]:
    """What the process has imported."""
    return sorted(sys.modules)


def speak(text: str) -> str:
    """Prints."""
    sys.stdout.write(f"{text}\n")
    sys.stderr.write(f"error: {text}\n")
    os.system(f"echo child: {text}")
    sys.stdout.write("unfinished")
    return text


def note(path: str, number: int) -> int:
    """Writes a line."""
    with Path(path).open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    time.sleep(0.002)
    return number


@tool(read_only=True)
def look(path: str, number: int) -> int:
    """Writes a line, which does not count as a change."""
    return note(path, number)


def die(path: str, code: int = 0) -> None:
    """Ends its process."""
    note(path, 0)
    sys.stdout.write("about to die\n")
    time.sleep(0.1)
    if code:
        os._exit(code)
    os.kill(os.getpid(), signal.SIGSEGV)


@tool(read_only=True)
def die_reading(path: str) -> None:
    """Ends its process each time."""
    die(path)


@tool(idempotent=True)
def die_once(path: str) -> str:
    """Ends its process the first time."""
    if not Path(path).exists():
        die(path)
    return "done"


def leave() -> None:
    """Calls sys.exit."""
    sys.exit("enough")


def fail_with_surrogates(context: RunContext[None], is_content: bool = False) -> Text:
    """Reports, logs and raises, or returns, a text that is not valid Unicode, as file names may be."""
    context.progress(0.5, "at \ud800")
    context.log("note \ud800")
    if is_content:
        return Text("content \ud800")
    raise ValueError("bad \ud800 thing")


@tool(timeout=60)
async def wait_politely(port: int, context: RunContext[None]) -> None:
    """Waits, and says when it is cancelled."""
    move(port, "started")
    context.progress(0.1)
    try:
        await asyncio.sleep(60)
    finally:
        move(port, f"cancelled {context.cancelled}")


@tool(timeout=60)
def wait_in_thread(port: int, context: RunContext[None]) -> None:
    """Waits until it is cancelled."""
    move(port, "started")
    while not context.cancelled:
        time.sleep(0.01)
    move(port, "cancelled True")


@tool(timeout=60)
def ignore_cancellation(port: int) -> None:
    """Never ends."""
    move(port, "started")
    keep_moving(port)


@tool(timeout=60)
def refuse_to_end(port: int, context: RunContext[None]) -> None:
    """Moves the counter with a daemon, tells when it is asked to end, and does not end."""
    if os.fork() == 0:
        os.setsid()
        keep_moving(port)
    move(port, f"started {os.getpid()}")
    context.progress(0.1)
    while not context.cancelled:
        time.sleep(0.01)
    move(port, "asked")
    keep_moving(port)


@tool(timeout=None)
def stuck(port: int) -> None:
    """Holds the interpreter's lock for a long time."""
    hold_gil.function(port)


async def report(context: RunContext[None]) -> str:
    """Reports progress."""
    context.progress(0.4, "reading")
    context.log("a note")
    return "done"


async def total(items: list[str], context: RunContext[Any]) -> int:
    """Adds prices, which another tool knows."""
    results = [await context.call_tool("price", {"item": item}) for item in items]
    return sum(result.value for result in results) + context.user["shipping"]


def total_in_thread(items: list[str], context: RunContext[None]) -> int:
    """Does the same as a plain function."""
    return sum(context.run_blocking(context.call_tool("price", {"item": item})).value for item in items)


async def ask(question: str, context: RunContext[None]) -> str:
    """Asks the user."""
    return f"{await context.ask_user(question)}!"


@tool(read_only=True, timeout=60)
async def descend(context: RunContext[None], levels: int = 0) -> list[int]:
    """Calls itself in other processes."""
    if not levels:
        return [os.getpid()]
    result = await context.call_tool("descend", {"levels": levels - 1})
    return [os.getpid(), *result.value] if not result.is_error else [os.getpid(), result.value]


@tool(read_only=True, timeout=60)
async def call_in_order(names: list[str], context: RunContext[None]) -> list[Any]:
    """Calls tools one after another."""
    return [(await context.call_tool(name, {})).value for name in names]


@tool(read_only=True, timeout=60)
async def call_at_once(names: list[str], context: RunContext[None]) -> list[Any]:
    """Calls tools at the same time."""
    results = await asyncio.gather(*(context.call_tool(name, {}) for name in names))
    return [result.value for result in results]


async def idempotency_key(context: RunContext[None]) -> str:
    """Returns the key of the call."""
    return context.idempotency_key


def environment() -> dict[str, str]:
    """The environment variables of the process."""
    return dict(os.environ)


def connect_unix(path: str) -> str:
    """Opens a connection to a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "connected"


def allocate(megabytes: int) -> int:
    """Takes memory."""
    return len(bytearray(megabytes * 2**20))


@tool(timeout=None)
def burn() -> None:
    """Uses CPU time."""
    while True:
        pass


def write(path: str) -> str:
    """Writes a file."""
    Path(path).write_text("x")
    return path


def scratch() -> str:
    """Writes to the temporary folder."""
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        return file.name


def connect(port: int) -> str:
    """Opens a connection."""
    with socket.create_connection(("127.0.0.1", port), 5):
        return "connected"


def whole(number: int) -> int:
    """Returns a number as it is."""
    return number


def everything() -> bytes:
    """Returns too much."""
    return b"\x89PNG\r\n\x1a\n" + bytes(60 * 2**20)


tools = [
    *(busy_loop, hold_gil, hung_socket, deaf_child, daemons, count, pid, modules, speak, note, look, die, die_reading),
    *(die_once, leave, wait_politely, wait_in_thread, ignore_cancellation, stuck, report, total, total_in_thread, ask),
    *(descend, allocate, burn, write, scratch, connect, whole, everything, refuse_to_end, call_in_order, call_at_once),
    *(idempotency_key, environment, connect_unix, fail_with_surrogates),
]
