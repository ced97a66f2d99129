"""Print the files of midspan that one turn passes through: python scripts/trace_turn.py [--stream] [--write]

An agent with the Gemini provider runs against the local Gemini, which asks for one tool call in every turn. The trace
covers one turn after the first ones, so that imports, connections and caches of the first turns do not count: from the
moment at which the run asks the model until it asks again.

A file is entered when another file of midspan calls a function of it. Returning to a file, and resuming a coroutine or
generator that waited, do not count. Calls through asyncio, contextlib and other libraries count as calls of the midspan
file that made them. Neither methods of the immutable values in `_types` nor constructors count: they are no steps of
the turn. Calls by the event loop, such as the one for received data, are counted apart: how many there are depends on
the network.

Prints each file in the order of the first entry, how often it is entered, and from where it is entered first; totals
last. `--stream` traces `agent.stream` instead of `agent.run`. `--write` updates the trace in docs/architecture.md.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import asyncio
import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import midspan
from midspan import Agent, Gemini
from midspan.emulator import LocalGemini, call

PACKAGE = Path(midspan.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
BEGIN, END = "<!-- trace_turn.py -->\n```text\n", "```\n<!-- end -->\n"
TRACED_TURN = 3
EVENT_LOOP, NEXT_TURN = "(event loop)", "(next turn)"

_ROOT = f"{PACKAGE}/"
_VALUES = f"{PACKAGE}/_types/"
_ASK = "Run._next_request"
"""The function with which a turn starts."""


class File(NamedTuple):
    """A file that the turn passes through."""

    path: str
    entries: int
    entered_from: str
    """The file from which it is entered first."""
    callbacks: tuple[str, ...]
    """Its functions that the event loop calls."""


class _Tracer:
    """Records the calls between files of midspan during one turn, as a profile function of `sys.setprofile`."""

    def __init__(self) -> None:
        self.entries: Counter[str] = Counter()
        """In the order of the first entry."""
        self.entered_from: dict[str, str] = {}
        self.callbacks: dict[str, dict[str, None]] = {}
        self.turn = 0
        self._started: set[FrameType] = set()
        """Frames that have started. Python reports the resumption of a coroutine like a call."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not _is_step(path) or frame in self._started:
            return
        self._started.add(frame)
        function = frame.f_code
        starts_turn = function.co_qualname == _ASK
        self.turn += starts_turn
        if self.turn == TRACED_TURN and function.co_name != "__init__":
            caller = NEXT_TURN if starts_turn else _caller(frame)
            self._add(path.removeprefix(_ROOT), function.co_name, caller)

    def _add(self, path: str, function: str, caller: str) -> None:
        if caller == EVENT_LOOP:
            self.callbacks.setdefault(path, {})[function] = None
        elif path != caller:
            self.entries[path] += 1
            self.entered_from.setdefault(path, caller)


def _is_step(path: str) -> bool:
    return path.startswith(_ROOT) and not path.startswith(_VALUES)


def _caller(frame: FrameType) -> str:
    """Return the nearest file of midspan that the call comes from."""
    back = frame.f_back
    while back is not None and not _is_step(back.f_code.co_filename):
        back = back.f_back
    return EVENT_LOOP if back is None else back.f_code.co_filename.removeprefix(_ROOT)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _run(agent: Agent[Any], *, streams: bool) -> None:
    if not streams:
        await agent.run("What is the sum?")
        return
    async with agent.stream("What is the sum?") as stream:
        async for _ in stream:
            pass


def trace(*, streams: bool = False) -> list[File]:
    """Return the files of one turn in the order of their first entry."""
    tracer = _Tracer()
    script = [*(call("add", a=number, b=1) for number in range(TRACED_TURN)), "Done."]
    with LocalGemini(script) as server:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="any", base_url=server.url), tools=[add])
        sys.setprofile(tracer)
        try:
            asyncio.run(_run(agent, streams=streams))
        finally:
            sys.setprofile(None)
    assert tracer.turn == TRACED_TURN + 1, f"the run had {tracer.turn} turns; has {_ASK} another name?"
    return [
        File(path, tracer.entries[path], tracer.entered_from.get(path, EVENT_LOOP), (*tracer.callbacks.get(path, ()),))
        for path in dict.fromkeys((*tracer.entries, *tracer.callbacks))
    ]


def report(files: list[File]) -> str:
    """Return the trace as text."""
    lines = [f"{file.path:38}{file.entries:7}   {file.entered_from}" for file in files]
    folders = Counter(file.path.partition("/")[0] for file in files)
    counts = ", ".join(f"{folder} {count}" for folder, count in folders.items())
    once = sum(file.entries == 1 for file in files)
    total = sum(file.entries for file in files)
    lines += ["", f"{len(files)} files ({counts})", f"{total} entries; {once} files are entered once"]
    lines += [
        f"called by the event loop: {', '.join(file.callbacks)} in {file.path}" for file in files if file.callbacks
    ]
    return "".join(f"{line}\n" for line in (f"{'file':38}entries   first entered from", *lines))


def documented() -> str:
    """Return the trace that the architecture page shows."""
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]


def _write(text: str) -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert rest, f"{PAGE} has no place for the trace"
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}", "utf-8")


def main() -> None:
    parser = ArgumentParser(description="Print the files of midspan that one turn of an agent passes through.")
    parser.add_argument("--stream", action="store_true", help="trace agent.stream instead of agent.run")
    parser.add_argument("--write", action="store_true", help="update the trace in docs/architecture.md")
    options = parser.parse_args()
    text = report(trace(streams=options.stream))
    print(text, end="")
    if options.write:
        _write(report(trace()))


if __name__ == "__main__":
    main()
