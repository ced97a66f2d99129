"""A loop written by hand on the Gemini-level client, as a contestant of the shared benchmark."""

import asyncio
from typing import Any

IMPORT = "from midspan import gemini"
MODE = "async"


def make(base: str, tools: dict[str, Any]) -> Any:
    from midspan._types.messages import Message
    from midspan._types.parts import ToolCall, ToolResult
    from midspan.gemini import AsyncClient
    from midspan.messages import History

    client = AsyncClient(api_key="x", base_url=base)
    declared = list(tools.values())

    async def result_of(call: ToolCall) -> ToolResult:
        return ToolResult(call.id, call.name, await tools[call.name](**call.arguments))

    class Loop:
        async def run(self, model: str, prompt: str) -> str:
            history = History([Message.user(prompt)])
            while True:
                response = await client.generate_content(history, model=model, tools=declared)
                calls = response.message.calls
                if not calls:
                    return response.text
                one = len(calls) == 1
                results = [await result_of(calls[0])] if one else await asyncio.gather(*map(result_of, calls))
                history = history.append(response.message, Message.user(*results))

        async def stream(self, model: str, prompt: str) -> Any:
            async for chunk in client.stream_generate_content(prompt, model=model, tools=declared):
                yield chunk.text

        async def aclose(self) -> None:
            await client.aclose()

    return Loop()
