"""Starts runs by id, follows one from two places, and lists them. Needs a key in GEMINI_API_KEY; see README.md."""

import asyncio
import sys

from midspan import Agent, BackgroundRuns, SqliteJournal
from midspan.events import TextDelta


async def follow(name: str, runs: BackgroundRuns, run_id: str) -> None:
    """Print the events of a run. Subscribers may come late: stored events are sent first."""
    async for number, event in runs.subscribe(run_id):
        text = f" {event.text!r}" if isinstance(event, TextDelta) else ""
        print(f"{name} {number} {type(event).__name__}{text}")


async def main(file: str) -> None:
    agent = Agent("gemini:gemini-3.8-flash")
    journal = SqliteJournal(file)
    async with BackgroundRuns(agent, journal) as runs:
        first = runs.start("Say hello.", owner="ann")
        second = runs.start("Say hello.", owner="bob")
        await asyncio.gather(follow("A", runs, first), follow("B", runs, first))
        async for _, event in runs.subscribe(second, view="final"):
            print("second:", event.text)
        for info in await journal.list(owner="bob"):
            print(info.owner, info.summary.state, info.summary.usage.total, "tokens")
    await journal.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "runs.db"))
