"""Prometheus metrics of the server: requests, runs, turns, tool calls, durations and tokens."""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from midspan._loop.result import RunResult
from midspan._server.http import HttpError
from midspan._server.service import Service, StartedRun
from midspan._types.exchange import Usage
from midspan._types.run_state import ToolRun
from midspan.errors import JournalError

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OTHER = "other"


class Metrics:
    """The metrics of one application. The registry is its own, so several applications can run in one process."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("midspan_http_requests", "HTTP requests.", "method", "route", "status")
        self.request_seconds = self._histogram(
            "midspan_http_request_duration_seconds", "Time until a response was sent completely.", "method", "route"
        )
        self.runs = self._counter("midspan_runs", "Runs that have ended, by state.", "model", "state")
        self.run_seconds = self._histogram("midspan_run_duration_seconds", "Duration of runs.", "model")
        self.turns = self._counter("midspan_turns", "Turns of the model.", "model")
        self.tokens = self._counter("midspan_tokens", "Tokens, by kind: input or output.", "model", "kind")
        self.tool_calls = self._counter("midspan_tool_calls", "Tool calls, by outcome: ok or error.", "tool", "outcome")
        self.tool_seconds = self._histogram("midspan_tool_call_duration_seconds", "Duration of tool calls.", "tool")
        running = Gauge("midspan_runs_running", "Runs that are running now.", registry=self.registry)
        running.set_function(lambda: service.running)
        self._service = service
        self._counting: set[asyncio.Task[None]] = set()
        service.observers.append(self._observe)

    async def aclose(self) -> None:
        """Finish counting, which reads the journal."""
        if self._counting:
            await asyncio.wait(self._counting)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(name, description, labels, registry=self.registry)

    def _histogram(self, name: str, description: str, *labels: str) -> Histogram:
        return Histogram(name, description, labels, buckets=_SECONDS, registry=self.registry)

    async def endpoint(self, request: Request) -> Response:
        """Return all metrics in the format that the client asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self.registry), headers={"content-type": content_type})

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request by its route, not by its path: paths have ids."""
        route = scope.get("route")
        path = _OTHER if route is None else route.path
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        self.requests.labels(method, path, str(status)).inc()
        self.request_seconds.labels(method, path).observe(seconds)

    def _observe(self, run: StartedRun) -> None:
        started = monotonic()
        run.result.add_done_callback(lambda task: self._on_end(run, monotonic() - started, task))

    def _on_end(self, run: StartedRun, seconds: float, task: "asyncio.Task[RunResult[Any]]") -> None:
        self.run_seconds.labels(run.choice.id).observe(seconds)
        if not task.cancelled() and task.exception() is None:
            result = task.result()
            self._count_run(run, "completed", result.turns, result.usage, result.tool_calls)
        else:
            counting = asyncio.get_running_loop().create_task(self._count_failed(run))
            self._counting.add(counting)
            counting.add_done_callback(self._counting.discard)

    async def _count_failed(self, run: StartedRun) -> None:
        """An error does not carry the calls of the run, but the journal has them."""
        try:
            stored = await self._service.stored(run.owner, run.id)
        except (HttpError, JournalError):  # it was deleted meanwhile, or could not be stored
            self.runs.labels(run.choice.id, "failed").inc()
            return
        state = stored.state
        self._count_run(run, stored.info.summary.state, state.turn, state.usage, (*state.tool_runs, *state.ended))

    def _count_run(self, run: StartedRun, state: str, turns: int, usage: Usage, calls: Iterable[ToolRun]) -> None:
        model = run.choice.id
        self.runs.labels(model, state).inc()
        self.turns.labels(model).inc(turns)
        self.tokens.labels(model, "input").inc(usage.input)
        self.tokens.labels(model, "output").inc(usage.output + usage.thoughts)
        for call in calls:
            # A model may invent names, and each of them would be a time series of its own.
            name = call.name if call.name in self._service.source.names else _OTHER
            self.tool_calls.labels(name, "error" if call.result.is_error else "ok").inc()
            self.tool_seconds.labels(name).observe(call.duration_seconds)
