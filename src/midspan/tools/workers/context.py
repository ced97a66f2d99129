"""The context of a call in a worker process, whose run is in the host."""

import logging
from time import monotonic
from typing import Any

import msgspec

from midspan._types.context import RunContext, RunHost
from midspan.errors import ToolError
from midspan.tools.workers import protocol

_decode_json = msgspec.json.Decoder().decode


class WorkerContext(RunContext[Any], kw_only=True):
    """The context of a call whose run is in another process."""

    number: int
    encoded_user: bytes | None
    """What the caller passed to the run, until a tool reads it; None if it is not JSON serializable."""

    @classmethod
    def of(cls, message: protocol.Call, host: RunHost) -> "WorkerContext":
        return cls(
            run_id=message.run_id,
            call_id=message.id,
            turn=message.turn,
            index=message.index,
            depth=message.depth,
            deadline=None if message.seconds is None else monotonic() + message.seconds,
            host=host,
            number=message.call,
            encoded_user=message.user,
        )

    @property
    def user(self) -> Any:
        """What the caller passed to the run, as JSON data."""
        if self._user is None:
            if self.encoded_user is None:
                raise ToolError(
                    "the context of this run is not JSON serializable, so a tool in a worker cannot read it"
                )
            self._user = _decode_json(self.encoded_user)
        return self._user

    def log(self, message: str, level: int = logging.INFO) -> None:
        """Log a message under the ids of the call, in the host."""
        assert self.host is not None, "the worker"
        self.host.report_log(self, level, message)
