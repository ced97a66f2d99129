"""google-genai with automatic function calling, for benchmarks/peers.py."""

from typing import Any

from google import genai
from google.genai import types

IMPORT = "from google import genai"
MODE = "async"


class Peer:
    def __init__(self, base: str, tools: dict[str, Any]) -> None:
        options = types.HttpOptions(base_url=base)
        self.client = genai.Client(api_key="x", http_options=options).aio
        calling = types.AutomaticFunctionCallingConfig(maximum_remote_calls=1_000)
        self.config = types.GenerateContentConfig(tools=list(tools.values()), automatic_function_calling=calling)

    async def run(self, model: str, prompt: str) -> str:
        response = await self.client.models.generate_content(model=model, contents=prompt, config=self.config)
        return response.text or ""


make = Peer
