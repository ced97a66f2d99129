"""pydantic-ai with its Google model, for benchmarks/peers.py."""

from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

IMPORT = "from pydantic_ai import Agent"
MODE = "async"


class Peer:
    def __init__(self, base: str, tools: dict[str, Any]) -> None:
        self.provider = GoogleProvider(api_key="x", base_url=base)
        self.tools = list(tools.values())
        self.agents: dict[str, Agent] = {}

    async def run(self, model: str, prompt: str) -> str:
        if model not in self.agents:
            self.agents[model] = Agent(GoogleModel(model, provider=self.provider), tools=self.tools)
        result = await self.agents[model].run(prompt, usage_limits=UsageLimits(request_limit=None))
        return str(result.output)


make = Peer
