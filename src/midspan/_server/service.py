"""Runs and sessions of owners: the one place where runs are started, and where what a client may see is decided."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.background_runs import BackgroundRuns
from midspan._loop.options import AgentTools
from midspan._loop.result import RunResult
from midspan._server.config import ANONYMOUS, ServerConfig
from midspan._server.http import HttpError, client_disconnect, invalid
from midspan._storage.journal import Journal, RunInfo
from midspan._types.codec import from_json
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.events import RunEnd, RunStart
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.run_state import CALL_CANCELLED, RunState
from midspan.errors import ConfigError, JournalError, UnknownRunError
from midspan.providers.registry import family_name
from midspan.tools.source import ToolListing, ToolSource, describe_error
from midspan.tools.wrap import WrapperSource, is_local, list_source

_log = logging.getLogger("midspan._server")

_SHUTDOWN = "the server is shutting down"


class ModelChoice(Struct, frozen=True, eq=False):
    """A model that requests may name, and the agent with this model."""

    id: str
    provider: str
    model: str
    agent: Agent


class StartedRun(Struct, eq=False):
    """A run that this process has started."""

    id: str
    owner: str
    session: str | None
    choice: ModelChoice
    result: "asyncio.Task[RunResult[Any]]"
    """Ends with the run. Shield it, so that a cancelled request does not cancel it."""


class BusySession(Struct, eq=False):
    """A session in which a run is starting or running."""

    run: str | None = None
    """None while the run is starting: the messages of the session are read."""
    is_deleted: bool = False
    """Whether the session was deleted while the run was starting."""


class StoredRun(Struct, frozen=True):
    """A run as the journal has it."""

    info: RunInfo
    start: RunStart | None
    state: RunState
    end: RunEnd | None


class Service:
    """Everything behind the endpoints."""

    def __init__(
        self, agent: Agent, config: ServerConfig, journal: Journal | None, provider: str | None = None
    ) -> None:
        """`provider` is the name of the provider of the agent's model; by default that of its service."""
        limits = agent.limits
        if limits.on_limit == "error":
            limits = replace(limits, on_limit="message")
        tool_set = AgentTools(agent.tools)
        self.source = ServerTools(tool_set.source)
        """The tools of the server, without built-in tools of the model."""
        self.builtins = tool_set.builtins
        self.agent = agent.replace(limits=limits, tools=[*tool_set.builtins, self.source])
        self.config = config
        self.runs = BackgroundRuns(self.agent, journal)
        self.journal = self.runs.journal
        self.observers: list[Callable[[StartedRun], None]] = []
        """Called with every run that is started, for metrics."""
        self.is_draining = False
        self.has_journal_failed = False
        """Whether the journal did not take the run that ended last."""
        self.models = _model_choices(self.agent, config.models, provider)
        """The models that requests may name; the first is the default."""
        self._owners: Counter[str] = Counter()
        """The runs and MCP calls of each owner that are running."""
        self._idle = asyncio.Event()
        """Set when the last run or MCP call ends."""
        self._sessions: dict[tuple[str, str | None], BusySession] = {}
        """Sessions in which a run is starting or running, by owner and name."""
        self._deleting: Counter[tuple[str, str | None]] = Counter()
        """Sessions that are being deleted."""
        self._results: set[asyncio.Task[RunResult[Any]]] = set()
        self._cancelling: set[asyncio.Task[bool]] = set()
        self._starting: asyncio.Task[None] | None = None

    # The life of the service

    async def ready(self) -> None:
        """Mark the runs of an earlier process as interrupted, once."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._recover())
        if not self._starting.done():
            await asyncio.shield(self._starting)

    async def _recover(self) -> None:
        for run in await self.runs.interrupt_unfinished():
            _log.warning("run %s was interrupted by the end of an earlier process", run)

    async def aclose(self) -> None:
        """Take no more work, let runs and MCP calls end within `shutdown_seconds`, cancel the other runs."""
        self.is_draining = True
        if self.is_busy:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.shutdown_seconds):
                    await self._idle.wait()
        await self.runs.aclose(message=_SHUTDOWN)
        if self._results:
            await asyncio.wait(self._results)
        for choice in self.models[1:]:  # the first is the caller's agent
            await choice.agent.aclose()

    def choose(self, provider: str | None, model: str | None) -> ModelChoice:
        """Return the model that a request asks for. Raises HttpError if it is not available."""
        for choice in self.models:
            is_provider = not provider or provider.lower() == choice.provider.lower()
            if is_provider and (not model or model in (choice.id, choice.model)):
                return choice
        wanted = ":".join(filter(None, (provider, model)))
        available = ", ".join(choice.id for choice in self.models)
        raise HttpError(
            404, f"the model {wanted[:200]!r} is not available here; available: {available}", error="model_not_found"
        )

    @property
    def running(self) -> int:
        """The number of running runs."""
        return len(self._results)

    @property
    def is_busy(self) -> bool:
        """Whether a run or an MCP call is running."""
        return bool(self._owners)

    # Starting and reading runs

    async def start(
        self,
        owner: str,
        prompt: str | Message | None,
        *,
        choice: ModelChoice,
        session: str | None = None,
        edit: Callable[[tuple[Message, ...]], Sequence[Message]] | None = None,
        messages: Sequence[Message] | None = None,
        **options: Any,
    ) -> StartedRun:
        """Start a run that continues a session, or starts a new one; `edit` may change the stored messages.

        A run with `messages` belongs to no session.
        """
        self._check_length(prompt, messages)
        id, is_new = new_run_id(), session is None
        if is_new and messages is None:
            session = id.replace("run", "session")
        busy = self.acquire(owner, session)
        try:
            if messages is None:
                stored = () if session is None or is_new else await self.history(owner, session)
                messages = stored if edit is None else edit(stored)
            if busy.is_deleted:
                raise HttpError(409, f"session {session!r} was deleted before the run started")
            self.runs.start(
                prompt,
                agent=choice.agent,
                run_id=id,
                owner=owner,
                session=session,
                messages=messages or None,
                **options,
            )
            busy.run = id
        except BaseException as error:
            self.release(owner, session)
            if isinstance(error, ConfigError):  # the prompt, or an option that the client chose
                raise invalid(str(error)) from error
            raise
        result = asyncio.get_running_loop().create_task(self.runs.result(id))
        run = StartedRun(id, owner, session, choice, result)
        self._register(run)
        return run

    def _check_length(self, prompt: str | Message | None, messages: Sequence[Message] | None) -> None:
        """Raise HttpError if a prompt is too long."""
        texts = [prompt if isinstance(prompt, str) else prompt.text] if prompt is not None else []
        texts += [message.text for message in messages or () if message.role == "user"]
        if any(len(text) > self.config.max_prompt_chars for text in texts):
            raise HttpError(413, f"the prompt has more than {self.config.max_prompt_chars} characters")

    def _register(self, run: StartedRun) -> None:
        """Keep a run until it ends, limit its time, and report it to the observers."""
        # Not `Limits.max_seconds`, which would watch the clock at every step of the run.
        timer = asyncio.get_running_loop().call_later(self.config.max_run_seconds, self._cancel_overdue, run.id)
        self._results.add(run.result)
        run.result.add_done_callback(lambda _: self._on_end(run, timer))
        for observer in self.observers:
            observer(run)

    def check_open(self) -> None:
        """Raise HttpError if the server shuts down."""
        if self.is_draining:
            raise HttpError(503, _SHUTDOWN, headers={"Retry-After": "5"})

    def acquire(self, owner: str, session: str | None = None) -> BusySession:
        """Count one more run of an owner, and mark its session as busy.

        Raises HttpError if the session is busy, the runs would be too many, or the server shuts down.
        """
        if (owner, session) in self._sessions:
            raise HttpError(409, f"a run of session {session!r} is still running; wait for it or cancel it")
        if (owner, session) in self._deleting:
            raise HttpError(409, f"session {session!r} is being deleted; try again later")
        self.check_open()
        config, message = self.config, None
        if self._owners.total() >= config.max_runs:
            message = f"{config.max_runs} runs are running, which is the limit of this server; try again later"
        elif owner != ANONYMOUS and self._owners[owner] >= config.max_runs_per_token:  # ANONYMOUS is everybody
            message = f"{config.max_runs_per_token} runs of this token are running, which is its limit; try again later"
        if message is not None:
            raise HttpError(429, message, headers={"Retry-After": "1"})
        self._owners[owner] += 1
        busy = BusySession()
        if session is not None:
            self._sessions[owner, session] = busy
        return busy

    def release(self, owner: str, session: str | None = None) -> None:
        self._sessions.pop((owner, session), None)
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
        if not self._owners:
            self._idle.set()

    def _cancel_overdue(self, run_id: str) -> None:
        message = f"the run took longer than {self.config.max_run_seconds:g} seconds"
        cancelling = asyncio.get_running_loop().create_task(self.runs.cancel(run_id, message))
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    def _on_end(self, run: StartedRun, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._results.discard(run.result)
        self.release(run.owner, run.session)
        if not run.result.cancelled():
            # The error is in the journal; if nobody asks for it, asyncio logs it as never retrieved.
            self.has_journal_failed = isinstance(run.result.exception(), JournalError)

    async def info(self, owner: str, run_id: str) -> RunInfo:
        """Return a run of this owner. A run of another owner does not exist for it."""
        try:
            info = await self.journal.get(run_id)
        except (UnknownRunError, ConfigError):
            raise _unknown_run(run_id) from None
        if info.owner != owner:
            raise _unknown_run(run_id)
        return info

    async def stored(self, owner: str, run_id: str) -> StoredRun:
        """Return a run of this owner with everything that happened so far."""
        info = await self.info(owner, run_id)
        try:
            documents = await self.journal.read(run_id)
        except UnknownRunError:
            raise _unknown_run(run_id) from None
        events = [from_json(document, "event") for _, document in documents]
        start = next((event for event in events if isinstance(event, RunStart)), None)
        end = next((event for event in reversed(events) if isinstance(event, RunEnd)), None)
        return StoredRun(info, start, RunState.of_events(events), end)

    async def cancel(self, owner: str, run_id: str) -> None:
        """Cancel a run of this owner, if it is running."""
        info = await self.info(owner, run_id)
        if info.summary.state == "running":
            try:
                await self.runs.cancel(run_id)
            except ConfigError:  # another process has the journal, and no longer runs it
                _log.warning("run %s is not running in this process", run_id)

    async def wait(self, run: StartedRun, receive: Receive, *, cancel_on_disconnect: bool) -> None:
        """Wait until a run has ended. Raises ClientDisconnect if its client goes away first."""
        leaving = asyncio.get_running_loop().create_task(client_disconnect(receive))
        try:
            await asyncio.wait((run.result, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
        if not run.result.done():
            if cancel_on_disconnect:
                await self.cancel_abandoned(run)
            raise ClientDisconnect

    async def cancel_abandoned(self, run: StartedRun) -> None:
        """Cancel a run whose client closed the connection."""
        await self.runs.cancel(run.id, "the client closed the connection")

    # Sessions

    async def history(self, owner: str, session: str) -> tuple[Message, ...]:
        """Return the messages of a session, so that they can be continued."""
        runs = await self.journal.list(owner=owner, session=session, limit=1)
        if not runs:
            return ()
        stored = await self.stored(owner, runs[0].run)
        messages = stored.state.settled(CALL_CANCELLED).history.messages
        while messages and messages[-1].role == "user" and not messages[-1].results:
            messages = messages[:-1]  # a prompt that led to nothing
        return messages

    async def delete_session(self, owner: str, session: str) -> bool:
        """Cancel and delete all runs of a session. Returns whether there were any."""
        deleting, busy = Counter(((owner, session),)), self._sessions.get((owner, session))
        self._deleting += deleting  # a run that starts meanwhile would store the old messages again
        try:
            if busy is not None:
                await self._cancel_in(busy)
            runs = await self.journal.list(owner=owner, session=session)
            for info in runs:
                await self.cancel(owner, info.run)
                await self.journal.delete(info.run)
        finally:
            self._deleting -= deleting
        return bool(runs) or busy is not None

    async def _cancel_in(self, session: BusySession) -> None:
        """Cancel the run of a session, which may not be in the journal yet."""
        if session.run is None:
            session.is_deleted = True
        else:
            with suppress(ConfigError, UnknownRunError):  # it has just ended
                await self.runs.cancel(session.run)


def _unknown_run(run_id: str) -> HttpError:
    return HttpError(404, f"there is no run {run_id[:100]!r}")


def _model_choices(agent: Agent, names: Sequence[str], provider: str | None) -> list[ModelChoice]:
    """Return the model of the agent and others by name."""
    provider = provider or agent.provider.profile.service.lower().replace(" ", "-")
    default = ModelChoice(f"{provider}:{agent.model}", provider, agent.model, agent)
    choices = [default]
    for name in dict.fromkeys(names):
        other = agent.replace(model=name)
        if name not in (default.id, default.model):
            choices.append(ModelChoice(name, family_name(name), other.model, other))
    return choices


class ServerTools(WrapperSource):
    """The tools of the server. A SystemExit is an error of the call that raised it: others use this process too."""

    names: frozenset[str] = frozenset()
    """The names that were listed last."""

    def __init__(self, source: ToolSource) -> None:
        super().__init__(source)
        self.is_local = is_local(source)

    def adapt(self, tools: tuple[Any, ...]) -> tuple[Any, ...]:
        self.names = frozenset(spec.name for spec in tools)
        return tools

    async def list_tools(self) -> ToolListing:
        return self.update(await list_source(self.source))

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        try:
            return await self.source.call(call, context)
        except SystemExit as error:
            _log.error("tool %s called sys.exit", call.name, exc_info=error, extra=context.log_fields)
            return call.error_result(f"{call.name} failed: {describe_error(error)}")


class OwnedTools(WrapperSource):
    """The tools for one MCP client, whose calls count as runs of its owner."""

    def __init__(self, service: Service, owner: str) -> None:
        super().__init__(service.source)
        self._service, self._owner = service, owner

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        if context.depth:  # part of a call that is counted and has a time limit
            return await self.source.call(call, context)
        try:
            self._service.acquire(self._owner)
        except HttpError as error:
            return call.error_result(error.message)
        seconds = self._service.config.max_run_seconds
        try:
            async with asyncio.timeout(seconds) as timeout:
                return await self.source.call(call, context)
        except TimeoutError:
            if not timeout.expired():  # an error of the source
                raise
            return call.error_result(f"{call.name} was cancelled after {seconds:g} seconds")
        finally:
            self._service.release(self._owner)

    async def aclose(self) -> None:
        """The tools belong to the agent."""
