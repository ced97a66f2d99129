"""Tools for a model without function calling: calls are read from its text.

It needs a key in GEMINI_API_KEY; see README.md for running without one.
`prompt_mode=True` describes the tools in the system prompt. Midspan uses it by itself for models that need it.
"""

import logging

from midspan import Agent, tool

STOCK = {"lamp": 12, "chair": 4}


@tool(reads="stock")
def stock_level(item: str) -> int:
    """How many pieces of an item are in stock.

    Args:
        item: The item, in the singular.
    """
    return STOCK[item]


def main() -> None:
    logging.basicConfig(level=logging.WARNING)  # with logging.DEBUG, the whole prompt and every response are logged
    agent = Agent("gemini:gemini-3.8-flash", tools=[stock_level], prompt_mode=True)
    result = agent.run_sync("How many lamps are in stock?")
    for call in result.tool_calls:
        print(call.id, call.name, call.arguments, call.value)
    print(result.text)


if __name__ == "__main__":
    main()
