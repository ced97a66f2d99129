"""The context of a call in a worker process, whose run is in the host."""

import logging
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from midspan._types.context import RunContext, RunHost
from midspan.errors import ToolError
from midspan.tools.workers import protocol

_decode_json = msgspec.json.Decoder().decode


class _EncodedUser(Struct, frozen=True):
    """The user's value of a context, which is decoded when a tool reads it."""

    data: bytes | None
    """None if it is not JSON serializable."""

    def decode(self) -> Any:
        if self.data is None:
            raise ToolError("the context of this run is not JSON serializable, so a tool in a worker cannot read it")
        return _decode_json(self.data)


class WorkerContext(RunContext[Any]):
    """The context of a call whose run is in another process."""

    __slots__ = ("_user", "number")

    _user: Any

    def __init__(self, message: protocol.Call, host: RunHost) -> None:
        super().__init__(
            _EncodedUser(message.user),
            run_id=message.run_id,
            call_id=message.id,
            turn=message.turn,
            index=message.index,
            depth=message.depth,
            deadline=None if message.seconds is None else monotonic() + message.seconds,
            host=host,
        )
        self.number = message.call

    @property
    def user(self) -> Any:
        """What the caller passed to the run, as JSON data."""
        if isinstance(self._user, _EncodedUser):
            self._user = self._user.decode()
        return self._user

    @user.setter
    def user(self, value: Any) -> None:
        self._user = value

    def log(self, message: str, level: int = logging.INFO) -> None:
        """Log a message under the ids of the call, in the host."""
        assert self._host is not None, "the worker"
        self._host.report_log(self, level, message)
