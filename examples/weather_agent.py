"""An agent that knows weather and time. Needs a key in GEMINI_API_KEY; see README.md for running without one."""

from midspan import Agent, Limits
from midspan.toolsets.clock import clock_tool
from midspan.toolsets.weather import weather_tool

agent = Agent(
    "gemini:gemini-3.8-flash",
    tools=[weather_tool(), clock_tool()],
    system="Answer in one sentence.",
    limits=Limits(max_turns=5, max_seconds=60),
)


def main() -> None:
    result = agent.run_sync("How is the weather in Oslo?")
    for call in result.tool_calls:
        print(f"{call.name}({call.arguments}) -> {call.value}")
    print(result.text)
    print(f"{result.turns} requests, {result.usage.total} tokens")


if __name__ == "__main__":
    main()
