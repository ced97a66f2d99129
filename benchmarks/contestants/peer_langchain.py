"""LangChain's agent with its Google model, for benchmarks/peers.py."""

from typing import Any

from langchain.agents import create_agent
from langchain_google_genai import ChatGoogleGenerativeAI

IMPORT = "from langchain.agents import create_agent"
MODE = "async"


class Peer:
    def __init__(self, base: str, tools: dict[str, Any]) -> None:
        self.base, self.tools = base, list(tools.values())
        self.agents: dict[str, Any] = {}

    async def run(self, model: str, prompt: str) -> str:
        if model not in self.agents:
            chat = ChatGoogleGenerativeAI(model=model, api_key="x", base_url=self.base)
            self.agents[model] = create_agent(chat, self.tools)
        messages = {"messages": [{"role": "user", "content": prompt}]}
        result = await self.agents[model].ainvoke(messages, {"recursion_limit": 1_000})
        content = result["messages"][-1].content
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


make = Peer
