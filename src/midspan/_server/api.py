"""The endpoints under /api/v1: chat, runs, sessions, tools, models, health."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, get_args

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from midspan._loop.result import NumberedEvents, RunResult
from midspan._server import documents
from midspan._server.config import OWNER
from midspan._server.http import (
    EventStreamResponse,
    HttpError,
    error_document,
    frame,
    invalid,
    json_response,
    public_error,
    read_json,
    run_error,
)
from midspan._server.service import Service, StartedRun, StoredRun
from midspan._storage.journal import RunInfo, StateName
from midspan._types.codec import to_json
from midspan._types.events import RequestRetry, RunEnd, RunEvent, RunStart, SourceUnavailable, public_event
from midspan._types.run_state import ToolRun
from midspan.errors import ConfigError, JournalError, MidspanError

_MAX_PAGE = 200
_PAGE = 50
_STATES = get_args(StateName)
_DONE = frame({"type": "done"}, event="done")
_NO_EVENT = "Last-Event-ID must be the id of an event of this run"


class ApiEndpoints:
    """The endpoints of our own API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response | ASGIApp:
        service = self._service
        body = await read_json(request, documents.ChatRequest, service.config)
        run = await self._start(request, body, deltas=body.stream)
        if body.stream:
            frames = _event_frames(service.runs.subscribe(run.id), run.id)
            on_disconnect = partial(service.cancel_abandoned, run) if body.cancel_on_disconnect else None
            return EventStreamResponse(
                frames, service.config, headers={"x-run-id": run.id}, on_disconnect=on_disconnect
            )
        await service.wait(run, request.receive, cancel_on_disconnect=body.cancel_on_disconnect)
        try:
            result = run.result.result()
        except Exception as error:  # noqa: BLE001 - reported to the client
            raise run_error(error, run.id) from None
        return json_response(
            _answer(
                result,
                result.tool_calls,
                finish_reason=result.finish_reason,
                provider=run.choice.provider,
                model=run.choice.model,
                tools_available=len(service.source.names),
                run_id=run.id,
                session_id=run.session,
            )
        )

    async def _start(self, request: Request, body: documents.RunRequest, *, deltas: bool = True) -> StartedRun:
        if not body.prompt.strip():
            raise invalid("prompt must not be empty")
        service = self._service
        return await service.start(
            request.scope[OWNER],
            body.prompt,
            choice=service.choose(body.provider, body.model),
            session=body.session_id,
            context=body.context,
            deltas=deltas,
        )

    # Runs

    async def start_run(self, request: Request) -> Response:
        body = await read_json(request, documents.RunRequest, self._service.config)
        run = await self._start(request, body)
        events = self._service.runs.subscribe(run.id)
        try:
            await anext(events)  # then the run is in the journal, so that the client can ask for it
        except JournalError as error:
            raise run_error(error, run.id) from None
        finally:
            await events.aclose()
        document = await self._document(run.owner, run.id)
        return json_response(document, 202, {"Location": f"{request.scope.get('root_path', '')}/api/v1/runs/{run.id}"})

    async def list_runs(self, request: Request) -> Response:
        state: Any = request.query_params.get("state")
        if state is not None and state not in _STATES:
            raise invalid(f"state must be one of {', '.join(_STATES)}")
        session = request.query_params.get("session_id")
        limit, after = _page(request)
        owner = request.scope[OWNER]
        infos = await self._service.journal.list(owner=owner, state=state, session=session, after=after, limit=limit)
        following = infos[-1].cursor if len(infos) == limit else None
        return json_response(documents.RunList([_run_document(info) for info in infos], following))

    async def get_run(self, request: Request) -> Response:
        return json_response(await self._document(request.scope[OWNER], request.path_params["run_id"]))

    async def cancel_run(self, request: Request) -> Response:
        owner, run_id = request.scope[OWNER], request.path_params["run_id"]
        await self._service.cancel(owner, run_id)
        return json_response(await self._document(owner, run_id))

    async def _document(self, owner: str, run_id: str) -> documents.RunDocument:
        service = self._service
        info = await service.info(owner, run_id)
        if info.summary.state == "running":
            status = await service.runs.status(run_id)
            if not status.is_over:
                return _run_document(info, phase=status.phase)
            with suppress(Exception):  # the error of the run
                await service.runs.result(run_id)  # then its end is in the journal
        stored = await service.stored(owner, run_id)
        return _run_document(stored.info, result=self._stored_answer(stored))

    def _stored_answer(self, run: StoredRun) -> documents.ChatResponse | None:
        """Return the answer of a stored run, if it has one."""
        state, end = run.state, run.end
        if end is None or end.error is not None:
            return None
        model = run.info.summary.model or ""
        return _answer(
            end,
            state.tool_runs,
            finish_reason=state.finish_reason,
            provider=next((choice.provider for choice in self._service.models if choice.model == model), ""),
            model=model,
            run_id=run.info.run,
            session_id=run.info.session,
        )

    async def run_events(self, request: Request) -> Response | ASGIApp:
        service, owner, run_id = self._service, request.scope[OWNER], request.path_params["run_id"]
        from_event = _next_event(request)
        view: Any = request.query_params.get("view", "all")
        if view not in ("all", "final"):
            raise invalid("view must be all or final")
        info = await service.info(owner, run_id)
        if from_event > info.length:  # events are stored before they are sent
            raise invalid(_NO_EVENT)
        if info.summary.state != "running" and from_event == info.length:
            return Response(status_code=204)  # tells the EventSource of a browser not to come back
        events = service.runs.subscribe(run_id, from_event=from_event, view=view)
        return EventStreamResponse(_event_frames(events, run_id, _DONE if view == "final" else b""), service.config)

    # Sessions

    async def list_sessions(self, request: Request) -> Response:
        limit, after = _page(request)
        sessions = await self._service.journal.sessions(owner=request.scope[OWNER], after=after, limit=limit)
        following = sessions[-1].cursor if len(sessions) == limit else None
        listed = [
            documents.SessionDocument(
                session_id=item.session,
                runs=item.runs,
                last_run=item.last_run,
                started_at=item.started_at,
                updated_at=item.updated_at,
            )
            for item in sessions
        ]
        return json_response(documents.SessionList(listed, following))

    async def get_session(self, request: Request) -> Response:
        service, owner, session = self._service, request.scope[OWNER], session_of(request)
        runs = await service.journal.list(owner=owner, session=session)
        if not runs:
            raise _unknown_session(session)
        # The public form of an event has messages without provider data.
        start = public_event(RunStart("", "", await service.history(owner, session)))
        return json_response(
            documents.SessionDocument(
                session_id=session,
                runs=len(runs),
                last_run=runs[0].run,
                started_at=runs[-1].started_at,
                updated_at=max(run.updated_at for run in runs),
                messages=start["messages"],
            )
        )

    async def delete_session(self, request: Request) -> Response:
        session = session_of(request)
        if not await self._service.delete_session(request.scope[OWNER], session):
            raise _unknown_session(session)
        return Response(status_code=204)

    async def export_session(self, request: Request) -> Response:
        """The messages in the form that `midspan.from_json` reads."""
        service, owner, session = self._service, request.scope[OWNER], session_of(request)
        if not await service.journal.list(owner=owner, session=session, limit=1):
            raise _unknown_session(session)
        document = to_json(await service.history(owner, session))
        headers = {"content-disposition": 'attachment; filename="session.json"'}
        return Response(document, 200, headers, "application/json")

    # About the server

    async def tools(self, _: Request) -> Response:
        listed = [
            documents.ToolDocument(
                spec.name, spec.description, spec.parameters, None if spec.changes is None else not spec.changes
            )
            for spec in await self._service.source.list_tools()
        ]
        return json_response(documents.ToolList(listed))

    async def models(self, _: Request) -> Response:
        default, *_others = choices = self._service.models
        listed = [
            documents.ModelDocument(choice.id, choice.provider, choice.model, choice is default) for choice in choices
        ]
        return json_response(documents.ModelList(listed))

    async def health(self, _: Request) -> Response:
        """Whether the journal and all sources of tools can be used."""
        service = self._service
        listing = await service.source.list_tools()
        services = {source.name: "unavailable" for source in listing.unavailable}
        try:
            await service.journal.list(limit=1)
            services["journal"] = "unavailable" if service.has_journal_failed else "available"
        except (JournalError, ConfigError):
            services["journal"] = "unavailable"
        services["tools"] = f"{len(listing)} available"
        is_healthy = not listing.unavailable and services["journal"] == "available"
        status: Any = "shutting_down" if service.is_draining else "healthy" if is_healthy else "degraded"
        return json_response(
            documents.Health(status=status, mcp_server_ready=not listing.unavailable, services=services),
            503 if service.is_draining else 200,
        )

    async def alive(self, _: Request) -> Response:
        if self._service.is_draining:
            return json_response(documents.Health(status="shutting_down"), 503)
        return json_response(documents.Health(status="healthy"))


def _answer(end: RunEnd | RunResult[Any], runs: Sequence[ToolRun], **metadata: Any) -> documents.ChatResponse:
    calls = [documents.ToolCallDocument(run.id, run.name, run.arguments) for run in runs]
    results = [
        documents.ToolResultDocument(run.id, run.name, run.result.model_value, is_error=run.is_error) for run in runs
    ]
    usage, is_limited = documents.UsageDocument.of(end.usage), end.limit is not None
    described = documents.ChatMetadata(
        iterations=end.turns, max_reached=is_limited, limit=end.limit, usage=usage, **metadata
    )
    return documents.ChatResponse(end.text, calls, results, described)


def _run_document(
    run: RunInfo, *, phase: str | None = None, result: documents.ChatResponse | None = None
) -> documents.RunDocument:
    summary = run.summary
    return documents.RunDocument(
        run_id=run.run,
        session_id=run.session,
        state=summary.state,
        phase=phase,
        model=summary.model,
        turns=summary.turns,
        events=run.length,
        usage=documents.UsageDocument.of(summary.usage),
        started_at=run.started_at,
        updated_at=run.updated_at,
        error=None if summary.error is None else error_document(summary.error),
        result=result,
    )


async def _event_frames(events: NumberedEvents, run_id: str, last: bytes = b"") -> AsyncGenerator[bytes, None]:
    """The events of a run in their public form, with their numbers as ids, then `last`; or `error`."""
    try:
        async for number, event in events:
            public = _public_document(event)
            yield frame(public, id=number, event=public["type"])
        if last:
            yield last
    except MidspanError as error:
        yield frame(run_error(error, run_id).document(), event="error")
    finally:
        await events.aclose()


def _public_document(event: RunEvent) -> Any:
    """Return an event as clients may read it."""
    if isinstance(event, RunEnd) and event.error is not None:
        event = replace(event, error=public_error(event.error))
    elif isinstance(event, RequestRetry | SourceUnavailable):
        event = replace(event, message="")  # it may quote what a service or the stderr of a tool server says
    return public_event(event)


def _page(request: Request) -> tuple[int, str | None]:
    text = request.query_params.get("limit", str(_PAGE))
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= _MAX_PAGE):
        raise invalid(f"limit must be a number from 1 to {_MAX_PAGE}")
    after = request.query_params.get("after")
    if after is not None and re.fullmatch(documents.CURSOR_PATTERN, after) is None:
        raise invalid("after must be the value of next in the page before")
    return int(text), after


def _next_event(request: Request) -> int:
    """Return the number of the first event that the client wants: the one after the last that it has."""
    text = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise invalid(_NO_EVENT)
    return int(text) + 1


def session_of(request: Request) -> str:
    """Return the session that the path of a request names."""
    session: str = request.path_params["session_id"]
    if re.fullmatch(documents.SESSION_PATTERN, session) is None:
        raise _unknown_session(session)
    return session


def _unknown_session(session: str) -> HttpError:
    return HttpError(404, f"there is no session {session[:100]!r}")
