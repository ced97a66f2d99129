"""A run that has not started: its options are checked, and its tools may still have to be listed."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from midspan._loop.options import RunConfig
from midspan._loop.policies import out_of_time
from midspan._loop.prepare import PreparedRun
from midspan._loop.prompt import Messages, Prompt, conversation
from midspan._loop.result import RunResult, result_of
from midspan._loop.run import Run
from midspan._loop.turn import Listener
from midspan._types.context import OnQuestion
from midspan._types.run_state import CALL_NOT_RUN, RunState
from midspan._types.specs import Limits
from midspan.errors import ConfigError, MidspanError
from midspan.tools.tasks import Expired, with_timeout


class PendingRun:
    """A run whose options are checked, and that has not started."""

    def __init__(
        self, id: str, prompt: Prompt | None, messages: Messages | None, limits: Limits, config: RunConfig,
        prepared: PreparedRun | None, prepare: Callable[[], Awaitable[PreparedRun]],
        context: Any, on_question: OnQuestion | None,
    ) -> None:  # fmt: skip
        """`prepare` is called if `prepared` is None."""
        self.id, self.limits, self.config = id, limits, config
        self.context, self.on_question = context, on_question
        self.history, self.earlier_messages = conversation(prompt, messages)
        """The conversation with the prompt, and the number of messages before the prompt."""
        self._prepared, self._prepare = prepared, prepare

    async def start(self, listener: Listener | None) -> Run:
        started, prepared = monotonic(), self._prepared
        try:
            if prepared is None:
                prepared = await with_timeout(self._prepare(), self.limits.max_seconds)
            if self.context is None and prepared.needs_context:
                raise _no_context(prepared.needs_context[0])
        except Expired:
            raise self._with_transcript(out_of_time(self.limits)) from None
        except MidspanError as error:
            self._with_transcript(error)
            raise
        run_class: type[Run] = Run
        if self.config.telemetry is not None:
            from midspan._loop.telemetry import TracedRun  # loaded where runs are traced

            run_class = TracedRun
        return run_class(self, prepared, prepared.track(self.limits, started), listener)

    def result(self, run: Run) -> RunResult[Any]:
        return result_of(run, self.earlier_messages)

    def _with_transcript(self, error: MidspanError) -> MidspanError:
        """Add the conversation to the error of a run that could not start; calls at its end were not run."""
        error.transcript = RunState.of(self.history).settled(CALL_NOT_RUN).history
        return error


def _no_context(tool: str) -> ConfigError:
    return ConfigError(
        f"the tool {tool!r} needs the context of the run; pass context=… or give its parameter a default"
    )
