"""A run that has not started: its options are checked, and its tools may still have to be listed."""

from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from msgspec import Struct

from midspan._loop.options import RunConfig
from midspan._loop.policies import out_of_time
from midspan._loop.prepare import PreparedRun
from midspan._loop.result import RunResult, result_of
from midspan._loop.run import Run
from midspan._loop.turn import Listener
from midspan._types.context import OnQuestion
from midspan._types.messages import History
from midspan._types.run_state import CALL_NOT_RUN, RunState
from midspan._types.specs import Limits
from midspan.errors import ConfigError, MidspanError
from midspan.tools.tasks import Expired, with_timeout


class PendingRun(Struct, frozen=True, eq=False):
    """A run whose options are checked, and that has not started."""

    id: str
    history: History
    earlier_messages: int
    """The number of messages before the prompt."""
    limits: Limits
    prepare: Callable[[], Awaitable[PreparedRun]]
    prepared: PreparedRun | None
    """What `prepare` would return, if that is known."""
    context: Any
    on_question: OnQuestion | None
    config: RunConfig

    async def result(self) -> RunResult[Any]:
        """Execute the run and return its result."""
        run = await self.start(None)
        await run.execute()
        return result_of(run, self.earlier_messages)

    async def start(self, listener: Listener | None) -> Run:
        started, prepared = monotonic(), self.prepared
        try:
            if prepared is None:
                prepared = await with_timeout(self.prepare(), self.limits.max_seconds)
            if self.context is None and prepared.needs_context:
                raise _no_context(prepared.needs_context[0])
        except Expired:
            raise self._with_transcript(out_of_time(self.limits)) from None
        except MidspanError as error:
            self._with_transcript(error)
            raise
        make_run: Callable[..., Run] = Run
        if self.config.telemetry is not None:
            from midspan._loop.telemetry import TracedRun  # loaded where runs are traced

            make_run = partial(TracedRun, self.config.telemetry)
        limits = prepared.track(self.limits, started)
        options = {"listener": listener, "context": self.context, "on_question": self.on_question}
        return make_run(self.id, prepared, self.history, limits, **options)

    def _with_transcript(self, error: MidspanError) -> MidspanError:
        """Add the conversation to the error of a run that could not start; calls at its end were not run."""
        error.transcript = RunState.of(self.history).settled(CALL_NOT_RUN).history
        return error


def _no_context(tool: str) -> ConfigError:
    return ConfigError(
        f"the tool {tool!r} needs the context of the run; pass context=… or give its parameter a default"
    )
