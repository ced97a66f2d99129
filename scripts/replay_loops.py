"""Replay recorded tool loops through the loop itself: python scripts/replay_loops.py FILE…

A tool loop is a response with calls, and a later request of the same conversation with their results (see
replay_traffic.py for the format of the files). A loopback server sends the recorded responses, the tools return the
recorded results, and an Agent runs, once blocking and once streaming. Each of its requests must be what
`traffic_expected` computes from the recording alone, the events must be the same in both modes, and the state folded
from the events must equal the state of the run after each event.

Prints each failing loop with its reason, and the counts last on one line. Exits 1 if a loop fails.
"""

import project_python  # noqa: F401 - it must come first, see its docstring

# isort: split
import asyncio
import json
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from replay_traffic import (
    Row,
    as_bytes,
    capabilities_for,
    contents_of,
    conversations,
    expected_model_turn,
    expected_results_turn,
    is_gemini,
    next_contents,
    read_rows,
    recorded_documents,
    responses_in,
    result_fields,
    results_after,
    turn_of,
)
from traffic_expected import as_list, expected_parts, matched, open_calls
from traffic_rules import Difference, camel_cased, first_difference

from midspan import Agent, Gemini, Limits
from midspan._types.codec import from_json, to_json
from midspan._types.events import RunEvent, TextDelta, ThoughtDelta, ToolEnd
from midspan._types.messages import History
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.run_state import RunState
from midspan._types.specs import ToolSpec
from midspan.providers.gemini import decode
from midspan.tools.source import ToolListing, ToolSource

DONE = {"candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP"}]}


class Step(NamedTuple):
    """One turn with calls, and their recorded results."""

    documents: list[Any]
    sent: list[Any]
    pairs: list[tuple[Any, Any]]
    """Each call with its response, in the order of the calls."""


class Loop(NamedTuple):
    """Consecutive steps after these contents."""

    row: Row
    before: list[Any]
    steps: list[Step]


def main(files: list[str]) -> int:
    if not files:
        print(__doc__)
        return 2
    skipped: Counter[str] = Counter()
    loops: list[Loop] = []
    unreadable: list[tuple[str, str]] = []
    for file in files:
        rows, wrong_lines = read_rows(Path(file))
        unreadable += wrong_lines
        for conversation in conversations(rows):
            try:
                loops += find_loops(conversation, skipped)
            except Exception as error:  # noqa: BLE001 - a row of an unknown shape must not end the script
                unreadable.append((conversation[0]["id"], f"{type(error).__name__}: {error}"))
    failures = asyncio.run(replay(loops))
    for reason, count in sorted(skipped.items()):
        print(f"{count:5} steps skipped: {reason}")
    for id, reason in [*unreadable, *((loop.row["id"], reason) for loop, reason in failures)]:
        print(f"FAILED {id}: {reason}")
    steps = sum(len(loop.steps) for loop in loops)
    passed, failed = len(loops) - len(failures), len(failures) + len(unreadable)
    print(f"{len(loops)} loops of {steps} rounds, blocking and streaming, {passed} passed, {failed} failed")
    return 1 if failed else 0


# What was recorded


def find_loops(rows: list[Row], skipped: Counter[str]) -> list[Loop]:
    """Return the loops of a conversation. A step that continues where another ended belongs to the same loop."""
    loops: list[Loop] = []
    ends: dict[str, int] = {}
    for row in rows:
        if not is_gemini(row) or "/interactions" in row["url"] or row["status"] >= 300:
            continue
        for before, after, step in steps_of(row, rows, skipped):
            place = ends.pop(key(before), None)
            if place is None:
                place = len(loops)
                loops.append(Loop(row, before, []))
            loops[place].steps.append(step)
            ends[key(after)] = place
    return loops


def key(contents: list[Any]) -> str:
    return json.dumps(camel_cased(contents), sort_keys=True)


def steps_of(row: Row, rows: list[Row], skipped: Counter[str]) -> list[tuple[list[Any], list[Any], Step]]:
    before = contents_of(row["request_json"])
    documents = [document for document in recorded_documents(row) if isinstance(document, dict)]
    sent = expected_parts(documents) if documents and not any("error" in document for document in documents) else []
    if open_calls(sent) and not has_finish_reason(documents):
        skipped["the response does not say why it ends, so its calls are not run"] += 1
        return []
    if open_calls(sent):
        after = next_contents(row, rows, before)
        if after is not None:
            _, rest = turn_of(after[len(before) :], set())
            recorded_step = step(documents, sent, results_after(rest), skipped)
            return [(before, after, recorded_step)] if recorded_step is not None else []
    return steps_of_request(before, skipped) if len(rows) == 1 else []


def has_finish_reason(documents: list[Any]) -> bool:
    return any(item.get("finishReason") for document in documents for item in document.get("candidates") or [])


def steps_of_request(contents: list[Any], skipped: Counter[str]) -> list[tuple[list[Any], list[Any], Step]]:
    """Return the steps of a single recorded request: its model turns with calls stand for responses."""
    steps = []
    for index, content in enumerate(camel_cased(contents)):
        parts = as_list(content.get("parts"))
        if content.get("role") != "model" or not open_calls(parts):
            continue
        answer = {"candidates": [{"content": {**content, "parts": parts}, "finishReason": "STOP"}]}
        recorded_step = step([answer], parts, results_after(contents[index + 1 :]), skipped)
        if recorded_step is not None:
            steps.append((contents[:index], contents[: index + 2], recorded_step))
    return steps


def step(documents: list[Any], sent: list[Any], results_turn: Any, skipped: Counter[str]) -> Step | None:
    calls = open_calls(sent)
    pairs = matched(calls, responses_in(results_turn)) if results_turn is not None else []
    if len(pairs) < len(calls):
        skipped["not every call has a recorded result"] += 1
        return None
    places = {id(call): place for place, call in enumerate(calls)}
    return Step(documents, sent, sorted(pairs, key=lambda pair: places[id(pair[0])]))


# Replaying


async def replay(loops: list[Loop]) -> list[tuple[Loop, str]]:
    server = Playback()
    failures = []
    await server.open()
    try:
        for loop in loops:
            try:
                await check(server, loop)
            except Difference as difference:
                failures.append((loop, str(difference)))
            except Exception as error:  # noqa: BLE001 - any error means that this loop failed
                failures.append((loop, f"{type(error).__name__}: {error}"))
    finally:
        await server.close()
    return failures


async def check(server: "Playback", loop: Loop) -> None:
    blocking = await run_loop(server, loop, streaming=False)
    streaming = await run_loop(server, loop, streaming=True)
    if blocking != streaming:
        raise Difference(f"streaming gives other events: {first_difference(streaming, blocking)}")


async def run_loop(server: "Playback", loop: Loop, *, streaming: bool) -> list[Any]:
    """Run the loop, compare its requests, and return its events."""
    capabilities = capabilities_for(loop.row)
    server.begin([step.documents for step in loop.steps])
    history = History(decode.conversation(as_bytes(content) for content in loop.before))
    async with Gemini(
        loop.row["model"] or "unknown", api_key="k", base_url=server.url, capabilities=capabilities
    ) as gemini:
        agent = Agent(gemini, tools=[RecordedTools(loop.steps)], limits=Limits(max_turns=None, max_repeats=None))
        events = await events_of(agent, history, streaming=streaming)
    compare(server.requests, loop, capabilities)
    return comparable(events)


async def events_of(agent: Agent, history: History, *, streaming: bool) -> list[RunEvent]:
    """Return the events of a run. After each one, the state folded from the stored events must be the live state."""
    folding = _Folding(streaming)
    queue: Any = folding
    folding.run = await agent._begin(None, messages=history).start(queue)
    await folding.run.execute()
    return folding.events


class _Folding:
    """Takes the place of the `EventQueue` of a run."""

    run: Any

    def __init__(self, deltas: bool) -> None:
        self.deltas = deltas
        self.events: list[RunEvent] = []
        self._state = RunState.of_events([])

    async def emit(self, event: RunEvent) -> None:
        self.events.append(event)
        self._state = self._state.after(from_json(to_json(event), "event"))
        if self._state != self.run.state:
            raise Difference(f"after {type(event).__name__} the folded state is not the state of the run")

    async def wait_for_reader(self) -> None:
        """Events are read at once."""

    def report(self, event: RunEvent) -> None:
        """The recorded tools report nothing."""


def compare(requests: list[Any], loop: Loop, capabilities: Any) -> None:
    if len(requests) != len(loop.steps) + 1:
        raise Difference(f"{len(requests)} requests were sent for {len(loop.steps)} rounds")
    for number, recorded_step in enumerate(loop.steps, 1):
        built = [{"role": turn["role"], "parts": as_list(turn["parts"])} for turn in requests[number]["contents"][-2:]]
        expected = [
            expected_model_turn(recorded_step.sent, capabilities),
            expected_results_turn(recorded_step.pairs, capabilities),
        ]
        if built != expected:
            raise Difference(f"request {number + 1} is not as expected: {first_difference(built, expected)}")
        if requests[number]["contents"][:-2] != requests[number - 1]["contents"]:
            raise Difference(f"request {number + 1} changes earlier contents")


def comparable(events: list[RunEvent]) -> list[Any]:
    """Return the events as plain values, without what differs each time: durations, local ids, text deltas."""
    numbers: dict[str, str] = {}

    def plain(event: RunEvent) -> Any:
        text = re.sub(r'"duration_seconds":[^,}]+', '"duration_seconds":0', to_json(event).decode())
        return json.loads(
            re.sub(r"(midspan|run)_[0-9a-f]{16}", lambda id: numbers.setdefault(id[0], f"id{len(numbers)}"), text)
        )

    values: list[Any] = []
    for (kind, _), group in groupby(events, lambda event: (type(event), getattr(event, "turn", None))):
        if kind in (TextDelta, ThoughtDelta):
            continue  # a blocking run has none, and their text is in the end of the turn
        if kind is ToolEnd:  # the calls of a turn end in any order
            values += sorted(map(plain, group), key=json.dumps)
        else:
            values += map(plain, group)
    return values


class RecordedTools(ToolSource):
    """Tools that return the recorded results."""

    def __init__(self, steps: list[Step]) -> None:
        self._waiting = [pair for step in steps for pair in step.pairs]
        self._names = sorted({call["name"] for call, _ in self._waiting})

    async def list_tools(self) -> ToolListing:
        return ToolListing(tuple(ToolSpec(name) for name in self._names))

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:  # noqa: ARG002 - of the protocol
        place = next(n for n, (recorded, _) in enumerate(self._waiting) if recorded["name"] == call.name)
        _, response = self._waiting.pop(place)
        return ToolResult(call.id, call.name, *result_fields(response))


class Playback:
    """A server that sends the recorded responses, whole or as a stream, as requested."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self._answers: list[list[Any]] = []
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def begin(self, answers: list[list[Any]]) -> None:
        self.requests, self._answers = [], [*answers, [DONE]]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                self.requests.append(json.loads(await reader.readexactly(int(length or 0))))
                writer.write(self._response(is_stream=b"stream" in head.partition(b"\r\n")[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.close()

    def _response(self, *, is_stream: bool) -> bytes:
        documents = self._answers.pop(0)
        if is_stream:
            body = b"".join(b"data: %b\r\n\r\n" % as_bytes(document) for document in documents)
        else:
            body = as_bytes(whole(documents))
        media_type = b"text/event-stream" if is_stream else b"application/json"
        return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (media_type, len(body), body)

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()


def whole(documents: list[Any]) -> Any:
    """Return the chunks of a stream as one response."""
    if len(documents) == 1:
        return documents[0]
    last = {name: value for document in documents for name, value in document.items() if value is not None}
    candidates = [item for document in documents for item in (document.get("candidates") or [])[:1]]
    candidate = {name: value for item in candidates for name, value in item.items() if value is not None}
    candidate["content"] = {"role": "model", "parts": expected_parts(documents)}
    return {**last, "candidates": [candidate]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
