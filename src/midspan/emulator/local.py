"""A local Gemini that is entered like any other resource, from plain code or from async code."""

import asyncio
import threading
from collections.abc import Awaitable, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from midspan._http.retry import Clock, SystemClock
from midspan.emulator.answering.options import Options
from midspan.emulator.answering.seen import Report
from midspan.emulator.answering.service import Service
from midspan.emulator.faults.plan import Fault, FaultPlan
from midspan.emulator.faults.runs import PlanRun
from midspan.emulator.refusal import Refusal
from midspan.emulator.serving.connection import Connection
from midspan.emulator.serving.requests import Request
from midspan.emulator.sources.provider import ProviderSource
from midspan.emulator.sources.script import script_of
from midspan.emulator.sources.source import Echo, Source
from midspan.errors import ConfigError
from midspan.providers.provider import Provider

_WAIT_SECONDS = 5.0
_LAST_PORT = 65_535

Plan = FaultPlan | str | Sequence[Fault | str] | None


class LocalGemini:
    """A server on loopback that speaks Gemini's wire, as strict as the real one.

    Entered with `with` it runs in a thread of its own; with `async with` in the loop that is there.
    """

    def __init__(
        self,
        script: Any = None,
        *,
        model: Provider | None = None,
        faults: Plan = None,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        strict_signatures: bool = False,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        least_cache_tokens: int = 1_024,
    ) -> None:
        _check_address(host, port)
        clock = SystemClock() if clock is None else clock
        options = Options(api_key, models, strict_signatures, least_cache_tokens, clock)
        self._service = Service(_source(script, model), options)
        self._clock = clock
        self._address = host, port
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.plan = faults

    @property
    def url(self) -> str:
        """What clients take for the address of the API."""
        host, port = self._address
        if port == 0:
            raise ConfigError("the server has no address yet; enter it first: with LocalGemini(...) as server")
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def url_for(self, plan: str) -> str:
        """The address under which a plan of `plans` holds, for clients that cannot send a header."""
        _check_name(plan)
        return f"{self.url}/~{quote(plan, safe='')}"

    @property
    def plan(self) -> FaultPlan:
        """The faults of all requests that name no plan; set it anew before each conversation."""
        return self._service.generation.run.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._service.generation.run = PlanRun(FaultPlan.of(plan))

    @property
    def plans(self) -> "Plans":
        """Plans by name: for requests to `url_for(name)`, or with the header `x-midspan-plan: name`."""
        return Plans(self._service.generation.runs)

    @property
    def made(self) -> tuple[Fault, ...]:
        """The faults of the present plan that have been made."""
        return tuple(self._service.generation.run.made)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The last requests, without those whose bodies are very large."""
        return tuple(self._service.seen.requests)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(self._service.seen.refusals)

    def report(self) -> Report:
        """What was seen so far."""
        return self._service.seen.report(len(self._open))

    def clear(self) -> None:
        """Forget what was seen."""
        self._service.seen.clear()

    async def start(self) -> None:
        """Listen, in the running event loop."""
        if self._server is not None:
            raise ConfigError(f"this server is already running at {self.url}")
        self._loop = asyncio.get_running_loop()
        host, port = self._address
        try:
            self._server = await self._loop.create_server(self._connection, host, port, backlog=2_048)
        except (OSError, ValueError) as error:  # the second is for a name that no host can have
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"nothing can listen on {host}:{port}: {why}") from error
        self._address = host, self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and let go of every connection."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in tuple(self._open):
            connection.abort()
            await connection.lost.wait()
        await server.wait_closed()

    def __enter__(self) -> Self:
        ready: threading.Event = threading.Event()
        failure: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run, args=(ready, failure), name="midspan-local-gemini", daemon=True
        )
        self._thread.start()
        if not ready.wait(_WAIT_SECONDS):
            raise ConfigError("the local server did not start in time")
        if failure:
            self._thread.join(_WAIT_SECONDS)
            raise failure[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_WAIT_SECONDS)
        self._thread = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _connection(self) -> Connection:
        return Connection(self._handle, self._clock, self._open)

    def _handle(self, request: Request) -> "list[Any] | Awaitable[list[Any]]":
        return self._service.handle(request)

    async def _end(self) -> None:
        await self.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()

    def _run(self, ready: threading.Event, failure: list[BaseException]) -> None:
        loop = _new_loop()
        try:
            loop.run_until_complete(self.start())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the server was entered
            failure.append(error)
            loop.close()
            ready.set()
            return
        ready.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end())
            loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """A faster one where it is installed: most of what a request costs here is the loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Plans(MutableMapping[str, FaultPlan]):
    """The named plans of a server; one that is set begins at its first request."""

    def __init__(self, runs: dict[str, PlanRun]) -> None:
        self._runs = runs

    def __getitem__(self, name: str) -> FaultPlan:
        return self._runs[name].plan

    def __setitem__(self, name: str, plan: Plan) -> None:
        _check_name(name)
        self._runs[name] = PlanRun(FaultPlan.of(plan))

    def __delitem__(self, name: str) -> None:
        del self._runs[name]

    def __iter__(self) -> Any:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def made(self, name: str) -> tuple[Fault, ...]:
        """The faults of this plan that have been made."""
        return tuple(self._runs[name].made)


def _check_name(plan: Any) -> None:
    if not isinstance(plan, str):
        raise ConfigError(f"a plan of faults is known by its name, a text, not by {plan!r:.80}")


def _check_address(host: Any, port: Any) -> None:
    if not isinstance(host, str) or not host.isascii() or not host.isprintable() or len(host.split()) != 1:
        raise ConfigError(f"host is an address of this machine, as '127.0.0.1', not {host!r:.80}")
    if type(port) is not int or not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"{port!r:.80} is no port; give a number up to {_LAST_PORT}, or 0 for any that is free")


def _source(script: Any, model: Provider | None) -> Source:
    if script is not None and model is not None:
        raise ConfigError("answers come from a script or from a model; give one of the two")
    if model is not None:
        if not isinstance(model, Provider) or isinstance(model, type):
            raise ConfigError(f"model is a provider, not {model!r:.80}; a name of a model is not enough here")
        return ProviderSource(model)
    found: Source = script_of(script) if script is not None else Echo()
    return found
