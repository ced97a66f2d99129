"""The UI message stream of Vercel's AI SDK, for `useChat`: one assistant message per run, one step per turn."""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from midspan._loop.result import NumberedEvents
from midspan._server.api import session_of
from midspan._server.config import OWNER
from midspan._server.documents import URL_PATTERN, UiChatRequest, UiMessage
from midspan._server.http import DONE, EventStreamResponse, frame, invalid, public_error, read_json, run_error
from midspan._server.openai_messages import blob_of_url
from midspan._server.service import Service
from midspan._types import events
from midspan._types.exchange import FinishReason
from midspan._types.messages import Message
from midspan._types.parts import Part, Text
from midspan.errors import MidspanError

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_FINISH_REASONS = {
    FinishReason.END: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT_FULL: "length",
    FinishReason.BLOCKED: "content-filter",
    FinishReason.REFUSED: "content-filter",
}


class UiApi:
    """The endpoints that `useChat` uses: one that answers, and one that resumes a stream."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response | ASGIApp:
        service, owner = self._service, request.scope[OWNER]
        body = await read_json(request, UiChatRequest, service.config)
        prompts = [at for at, message in enumerate(body.messages) if message.role == "user" and _parts(message)]
        if not prompts:
            raise invalid("there is nothing to answer: no message of the user has text or a file")
        last = prompts[-1]
        run = await service.start(
            owner,
            Message("user", tuple(_parts(body.messages[last]))),
            choice=service.choose(body.provider, body.model),
            session=body.id,
            edit=lambda stored: _earlier_messages(stored, body, last),
            context=body.context,
        )
        return self._stream(run.id)

    async def resume(self, request: Request) -> Response | ASGIApp:
        """The stream of the run that is running in the chat; 204 if there is none, as the SDK expects."""
        service, owner = self._service, request.scope[OWNER]
        session = session_of(request)
        running = await service.journal.list(owner=owner, session=session, state="running", limit=1)
        if not running:
            return Response(status_code=204)
        return self._stream(running[0].run)

    def _stream(self, run_id: str) -> EventStreamResponse:
        frames = _frames(run_id, self._service.runs.subscribe(run_id))
        return EventStreamResponse(frames, self._service.config, headers={**HEADERS, "x-run-id": run_id})


def _earlier_messages(stored: tuple[Message, ...], body: UiChatRequest, last: int) -> Sequence[Message]:
    """Return what came before the prompt, which is the message at `last`.

    The session is the truth about that. Only a chat that is new here is taken from the request.
    """
    if not stored:
        earlier = [(message.role, tuple(_parts(message))) for message in body.messages[:last]]
        return [Message("model" if role == "assistant" else "user", parts) for role, parts in earlier if parts]
    if body.trigger == "submit-message":
        return stored
    prompts = [at for at, message in enumerate(stored) if message.role == "user" and not message.results]
    return stored[: prompts[-1]] if prompts else ()


def _parts(message: UiMessage) -> list[Part]:
    parts: list[Part] = []
    for part in message.parts:
        if part.type == "text" and part.text and part.text.strip():
            parts.append(Text(part.text))
        elif part.type == "file" and part.url and message.role == "user":
            if re.fullmatch(URL_PATTERN, part.url) is None:
                raise invalid("the URL of a file must begin with https:// or http://, or be a data URL in base64")
            parts.append(blob_of_url(part.url, part.media_type or "application/octet-stream", part.filename))
    return parts


async def _frames(run_id: str, numbered: NumberedEvents) -> AsyncGenerator[bytes, None]:
    converter = _Converter(run_id)
    try:
        async for _, event in numbered:
            for chunk in converter.of(event):
                yield frame(chunk)
    except MidspanError as error:
        yield frame({"type": "error", "errorText": run_error(error, run_id).message})
    finally:
        await numbered.aclose()
    yield DONE


class _Converter:
    """Turns the events of a run into chunks of a message."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._open: tuple[str, str] | None = None
        """The text or reasoning that is being written: its type and its id."""
        self._parts = 0
        self._has_step = False
        self._text = ""
        """Of the last step, after that of the steps before it in which the model paused."""
        self._paused_text = ""
        self._announced: set[str] = set()
        self._finish_reason = FinishReason.END

    def of(self, event: events.RunEvent) -> Iterator[dict[str, Any]]:
        match event:
            case events.TextDelta(text=text):
                self._text += text
                yield from self._write("text", text)
            case events.ThoughtDelta(text=text):
                yield from self._write("reasoning", text)
            case events.ToolCallDelta():
                yield from self._call_delta(event)
            case events.ToolStart(turn=turn, call=call, index=index):
                fields = self._call_fields(turn, index)
                yield {"type": "tool-input-available", "toolName": call.name, "input": call.arguments, **fields}
            case events.ToolEnd():
                yield self._result(event)
            case _:
                yield from self._boundary(event)

    def _boundary(self, event: events.RunEvent) -> Iterator[dict[str, Any]]:
        """The chunks of an event that starts or ends a run or a turn."""
        match event:
            case events.RunStart():
                yield {"type": "start", "messageId": self._run_id, "messageMetadata": {"run_id": self._run_id}}
            case events.TurnStart():
                yield from self._end_step()
                self._has_step, self._text = True, self._paused_text
                yield {"type": "start-step"}
            case events.TurnEnd():
                self._finish_reason = event.finish_reason
                if event.message.calls:
                    self._paused_text = ""
                elif event.finish_reason is FinishReason.CONTINUES:
                    self._paused_text = self._text
                yield from self._close()
                for at, citation in enumerate(event.citations):
                    source = f"{self._run_id}-{event.turn}-{at}"
                    yield {"type": "source-url", "sourceId": source, "url": citation.url, "title": citation.title}
            case events.TurnRetry():
                yield from self._close()
            case events.RunEnd():
                yield from self._end(event)
            case events.Interrupted():
                yield from self._end_step()
                yield {"type": "abort", "reason": "the server was restarted"}

    def _call_fields(self, turn: int, index: int) -> dict[str, Any]:
        """The id of a call is unique in the message, whatever ids the model uses."""
        return {"toolCallId": f"{self._run_id}-{turn}-{index}", "dynamic": True, "providerExecuted": True}

    def _call_delta(self, event: events.ToolCallDelta) -> Iterator[dict[str, Any]]:
        yield from self._close()
        fields = self._call_fields(event.turn, event.index)
        id = fields["toolCallId"]
        if id not in self._announced and event.name:
            self._announced.add(id)
            yield {"type": "tool-input-start", "toolName": event.name, **fields}
        if id in self._announced and event.arguments:
            yield {"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": event.arguments}

    def _result(self, event: events.ToolEnd) -> dict[str, Any]:
        result, fields = event.result, self._call_fields(event.turn, event.index)
        if result.is_error:
            return {"type": "tool-output-error", "errorText": str(result.model_value), **fields}
        return {"type": "tool-output-available", "output": result.model_value, **fields}

    def _write(self, kind: str, text: str) -> Iterator[dict[str, Any]]:
        if self._open is None or self._open[0] != kind:
            yield from self._close()
            self._parts += 1
            self._open = kind, f"{kind}-{self._parts}"
            yield {"type": f"{kind}-start", "id": self._open[1]}
        yield {"type": f"{kind}-delta", "id": self._open[1], "delta": text}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            kind, id = self._open
            self._open = None
            yield {"type": f"{kind}-end", "id": id}

    def _end_step(self) -> Iterator[dict[str, Any]]:
        yield from self._close()
        if self._has_step:
            self._has_step = False
            yield {"type": "finish-step"}

    def _end(self, event: events.RunEnd) -> Iterator[dict[str, Any]]:
        if event.error is None and event.text and event.text != self._text:  # the text of a limit or of a tool
            yield from self._write("text", event.text.removeprefix(self._text))
        yield from self._end_step()
        if event.error is not None:
            yield {"type": "error", "errorText": public_error(event.error).message}
            yield {"type": "finish", "finishReason": "error"}
        else:
            yield {"type": "finish", "finishReason": _FINISH_REASONS.get(self._finish_reason, "other")}
