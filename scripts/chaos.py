"""Run a conversation with three tools under random faults: python scripts/chaos.py [--runs N]

Each run has a seed and the fault plan of that seed, which a local Gemini injects. A scaled clock shortens stalls and
retries. Every run must end with the right answer, or with an error of Midspan whose transcript can be continued. No
tool result may be lost, no call may run twice, and no task or connection may remain. Every second run streams. For a
run that fails, the smallest plan that still fails is printed. The last line has the counts; exits 1 on a failure.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import argparse
import asyncio
import sys
from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

from midspan import Agent, Gemini, tool
from midspan._http.messages import Timeouts
from midspan._http.transport import Transport
from midspan._types.messages import History
from midspan.emulator import Conversation, FaultPlan, LocalGemini, ScaledClock, call, shrink
from midspan.errors import MidspanError

SPEED = 1000
AT_ONCE = 32
MAX_SECONDS = 60.0
"""Of the real clock: a run that takes longer hangs."""
TIMEOUTS = Timeouts(first_byte=0.5, between_bytes=0.1)
"""Short, because the server's clock is fast, and some stalls must be too long."""


class Failure(Exception):
    """A run broke a rule."""


class Outcome(NamedTuple):
    end: str
    """`answer`, or the name of the error."""
    failure: str | None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.runs)
    outcomes, left = asyncio.run(run_all(seeds))
    failures = {seed: outcome.failure for seed, outcome in outcomes.items() if outcome.failure is not None}
    for seed, failure in list(failures.items())[:5]:
        smallest = shrink(FaultPlan.random(seed), lambda plan, seed=seed: asyncio.run(fails(seed, plan)))  # type: ignore[misc]  # a default is how a lambda keeps a value
        print(f"FAILED seed {seed}: {failure}\n  smallest plan: {smallest}")
    ends = Counter(outcome.end for outcome in outcomes.values())
    print(", ".join(f"{end} {count}" for end, count in ends.most_common()))
    print(f"runs={len(outcomes)} right={ends['answer']} failures={len(failures)} left={left}")
    return 1 if failures or left else 0


async def run_all(seeds: range) -> tuple[dict[int, Outcome], int]:
    """Return the outcome of each seed, and the number of tasks that remain."""
    outcomes: dict[int, Outcome] = {}
    waiting = iter(seeds)

    async def work() -> None:
        for seed in waiting:
            outcomes[seed] = await run_one(seed, FaultPlan.random(seed))
            if len(outcomes) % 1_000 == 0:
                print(f"{len(outcomes)} runs", file=sys.stderr)

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(seeds)))))
    return outcomes, len(asyncio.all_tasks()) - 1


async def fails(seed: int, plan: FaultPlan) -> bool:
    return (await run_one(seed, plan)).failure is not None


async def run_one(seed: int, plan: FaultPlan) -> Outcome:
    async with LocalGemini(shop, faults=plan, clock=ScaledClock(SPEED)) as server:
        outcome = await run_with(server.url, seed, plan)
        for _ in range(50):  # connections are closed a moment after they were released
            if not server.open_connections:
                return outcome
            await asyncio.sleep(0.02)
        return Outcome(outcome.end, f"{server.open_connections} connections remain open")


async def run_with(url: str, seed: int, plan: FaultPlan) -> Outcome:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return Outcome(await ask(url, seed, plan), None)
    except TimeoutError:
        return Outcome("hang", f"it took longer than {MAX_SECONDS:g} seconds")
    except Failure as failure:
        return Outcome("failure", str(failure))
    except Exception as error:  # noqa: BLE001 - errors of other kinds are what this script looks for
        return Outcome("failure", f"{type(error).__name__}: {error}")


async def ask(url: str, seed: int, plan: FaultPlan) -> str:
    """Ask for the price of three apples and two pears, check the result, and return how the run ended."""
    runs: list[tuple[str, str]] = []
    clock = ScaledClock(SPEED)
    transport = Transport(timeouts=TIMEOUTS)
    async with Gemini("gemini-3.8-flash", api_key="k", base_url=url, clock=clock, transport=transport) as gemini:
        agent = Agent(gemini, tools=tools(runs))
        stream = agent.stream(QUESTION)
        try:
            if seed % 2:
                async for _ in stream:
                    pass
                result = stream.result
            else:
                result = await agent.run(QUESTION)
        except MidspanError as error:
            if not isinstance(error.transcript, History):
                raise Failure(f"{type(error).__name__} without a transcript: {error}") from error
            check(error.transcript, runs)
            return type(error).__name__
    check(result.messages, runs)
    if not is_right(result.text, plan):
        raise Failure(f"a wrong answer: {result.text!r}")
    return "answer"


# The conversation

QUESTION = "What do three apples and two pears cost, with the discount of today?"
ANSWER = "Everything together costs 900 cents. Guten Appetit, schöne Grüße! 🍏🍐"


def tools(runs: list[tuple[str, str]]) -> list[Any]:
    """Return tools that record their calls."""

    @tool
    async def find_product(name: str) -> dict[str, str]:
        """Find a product by its name."""
        runs.append(("find_product", name))
        await asyncio.sleep(0)
        return {"id": f"id-{name}"}

    @tool
    async def price(id: str, count: int) -> int:
        """Get the price of some pieces of a product, in cents."""
        runs.append(("price", f"{id} {count}"))
        return 200 * count

    @tool
    def discount(total: int) -> int:
        """Apply the discount of today to a total."""
        runs.append(("discount", str(total)))
        return total - 100

    return [find_product, price, discount]


def shop(conversation: Conversation) -> Any:
    """Answer like a model that only looks at the results of its tools."""
    results = [
        (part.function_response.name, part.function_response.response or {})
        for content in conversation.contents
        for part in content.parts or ()
        if part.function_response is not None
    ]
    ids = [value["id"] for name, value in results if name == "find_product" and "id" in value]
    prices = [value["result"] for name, value in results if name == "price" and "result" in value]
    totals = [value["result"] for name, value in results if name == "discount" and "result" in value]
    if totals:
        return ANSWER.replace("900", str(totals[-1]))
    if len(prices) >= 2:
        return call("discount", total=sum(prices[:2]))
    if len(ids) >= 2:
        return [call("price", id="id-apple", count=3), call("price", id="id-pear", count=2)]
    return ["I look for them. ", call("find_product", name="apple"), call("find_product", name="pear")]


# The rules of a run


def check(history: History, runs: list[tuple[str, str]]) -> None:
    calls = [call for message in history for call in message.calls]
    for message, following in pairwise([*history, None]):
        ids = [call.id for call in message.calls] if message is not None else []
        if ids and (following is None or [result.id for result in following.results] != ids):
            raise Failure("a call has no result, or more than one")
    requested = Counter((call.name, " ".join(map(str, call.arguments.values()))) for call in calls)
    for run, count in Counter(runs).items():
        if count > requested[run]:
            raise Failure(f"{run} was run {count} times for {requested[run]} calls")
    successful = {result.id for message in history for result in message.results if not result.is_error}
    if len(successful) > len(runs):
        raise Failure("there are results of calls that were never run")


def is_right(text: str, plan: FaultPlan) -> bool:
    """Whether the text is the answer; a client cannot notice that the server sends a text chunk twice."""
    doubled = "doubled_chunk" in str(plan) and set(text) <= set(ANSWER) and len(text) > len(ANSWER)
    return text == ANSWER or doubled


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
