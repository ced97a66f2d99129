"""An agent around an agent, each of whose runs has its own tape: to be recorded on, or to be played."""

from collections.abc import Callable, Iterator, Sequence
from os import urandom
from typing import Any, Protocol

from msgspec import Struct

from midspan._loop.agent import Agent
from midspan._loop.prepare import ToolSet
from midspan._loop.prompt import Prompt
from midspan._loop.result import RunResult, RunStream
from midspan._types.events import RunEvent
from midspan._types.exchange import Usage
from midspan._types.messages import History
from midspan._types.specs import Limits
from midspan.providers.provider import Provider
from midspan.tools.source import ToolSource


class Opening(Struct, frozen=True, eq=False):
    """How a run begins."""

    run_id: str
    model: str
    history: History
    options: dict[str, Any]


class Session(Protocol):
    """What goes around the model and the tools of one run, and hears how it ended."""

    def provider(self, provider: Provider) -> Provider: ...

    def tools(self, source: ToolSource) -> ToolSource: ...

    def ended(self, result: RunResult) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Taped(Agent):
    """Does all that the agent within does, with something around the model and the tools of each run."""

    def __init__(self, agent: Agent, begin: Callable[[Opening], Session]) -> None:
        self._agent = agent
        self._begin = begin

    @property
    def model(self) -> Provider:
        return self._agent.model

    @property
    def tools(self) -> Sequence[Any]:
        return self._agent.tools

    def replace(self, *, limits: Limits | None = None, **other: Any) -> Agent:
        return Taped(self._agent.replace(limits=limits, **other), self._begin)

    def __repr__(self) -> str:
        return f"Taped({self._agent!r})"

    async def run(self, prompt: Prompt | None = None, **options: Any) -> RunResult:
        session, options = self._session(prompt, options)
        try:
            result = await self._agent.run(prompt, **options)
        except Exception as error:
            session.failed(error)
            raise
        session.ended(result)
        return result

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream:
        session, options = self._session(prompt, options)
        return _TapedStream(self._agent.stream(prompt, **options), session)

    async def close(self) -> None:
        await self._agent.close()

    def _session(self, prompt: Any, given: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        """What goes around this run, and the options with which it does."""
        messages = given.get("messages", ())
        messages = tuple(messages) if isinstance(messages, Iterator) else messages  # those can be taken only once
        run_id = f"run_{urandom(8).hex()}" if given.get("run_id") is None else given["run_id"]
        chosen = self._agent.replace(**{name: given[name] for name in ("model", "tools") if name in given})
        history = self._agent.stream(prompt, messages=messages).messages  # what a run of this begins with; none does
        opening = Opening(run_id, chosen.model.model, history, given)
        session = self._begin(opening)
        tools = ToolSet(chosen.tools)
        around = {"model": session.provider(chosen.model), "tools": [*tools.builtins, session.tools(tools.source)]}
        return session, {**given, "messages": messages, "run_id": run_id, **around}


class _TapedStream(RunStream):
    """Passes on the events of another stream and reports its end to the session."""

    def __init__(self, stream: RunStream, session: Session) -> None:
        # Not RunStream's own: the wrapped stream has the run and its task.
        self._stream = stream
        self._session: Session | None = session

    async def __anext__(self) -> RunEvent:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            if self._session is not None and self._stream.has_ended:
                self._session.ended(self._stream.result)
            self._session = None
            raise
        except Exception as error:
            if self._session is not None:
                self._session.failed(error)
            self._session = None
            raise

    async def aclose(self) -> None:
        self._session = None
        await self._stream.aclose()

    @property
    def has_ended(self) -> bool:
        return self._stream.has_ended

    @property
    def result(self) -> RunResult:
        return self._stream.result

    @property
    def messages(self) -> History:
        return self._stream.messages

    @property
    def usage(self) -> Usage:
        return self._stream.usage
