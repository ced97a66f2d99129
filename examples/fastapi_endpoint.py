"""An HTTP endpoint that streams the answer of an agent.

It needs a key in GEMINI_API_KEY (or see README.md) and `pip install fastapi uvicorn`.
Run it with `uvicorn fastapi_endpoint:app`, then `curl -N --json '{"prompt": "Say hello."}' localhost:8000/ask`.
"""

import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from midspan import Agent
from midspan.errors import MidspanError
from midspan.events import public_event

agent = Agent("gemini:gemini-3.8-flash", system="Be brief.")
app = FastAPI()


class Question(BaseModel):
    prompt: str


@app.post("/ask")
async def ask(question: Question) -> StreamingResponse:
    return StreamingResponse(events(question.prompt), media_type="text/event-stream")


async def events(prompt: str) -> AsyncIterator[str]:
    """Yield the events of a run. If the client disconnects, the block is left and the run is cancelled."""
    async with agent.stream(prompt) as stream:
        try:
            async for event in stream:
                yield f"data: {json.dumps(public_event(event))}\n\n"
        except MidspanError as error:
            yield f"data: {json.dumps({'type': 'error', 'message': str(error)})}\n\n"
