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
    """The context of a call whose run is in another process. `user` is JSON data."""

    number: int

    @classmethod
    def of(cls, message: protocol.Call, host: RunHost) -> "WorkerContext":
        return cls(
            _UnreadableUser() if message.user is None else _decode_json(message.user),
            run_id=message.run_id,
            call_id=message.id,
            turn=message.turn,
            index=message.index,
            depth=message.depth,
            deadline=None if message.seconds is None else monotonic() + message.seconds,
            host=host,
            number=message.call,
        )

    def log(self, message: str, level: int = logging.INFO) -> None:
        """Log a message under the ids of the call, in the host."""
        assert self.host is not None, "the worker"
        self.host.report_log(self, level, message)


class _UnreadableUser:
    """Stands for what the caller passed to the run, if it is not JSON serializable: reading it is an error."""

    def __getattr__(self, name: str) -> Any:
        raise ToolError("the context of this run is not JSON serializable, so a tool in a worker cannot read it")

    __getitem__ = __getattr__
