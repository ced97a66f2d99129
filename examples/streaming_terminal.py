"""Prints text, tool calls and results while a run is going on. Needs a key in GEMINI_API_KEY; see README.md."""

import asyncio
import sys

from midspan import Agent
from midspan.events import TextDelta, ToolEnd, ToolStart, TurnRetry

PRICES = {"lamp": 49.0, "chair": 120.0}


def get_price(item: str) -> float:
    """The price of an item in euros.

    Args:
        item: The item, in the singular.
    """
    return PRICES[item]


async def main(question: str) -> None:
    agent = Agent("gemini:gemini-3.8-flash", tools=[get_price])
    async with agent.stream(question) as stream:
        async for event in stream:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ToolStart(call=call):
                    print(f"\n[calling {call.name} with {call.arguments}]")
                case ToolEnd(result=result):
                    print(f"[{'failed' if result.is_error else 'returned'}: {result.value}]")
                case TurnRetry(reason=reason):
                    print(f"\n[asking again: {reason}]")
                case _:
                    pass  # other events, also those that later versions add
    print(f"\n{stream.result.turns} requests")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "What does a lamp cost?"))
