"""Accepts remote workers: those that connect to an address of the host, with its token."""

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable, Collection

from midspan.errors import ConfigError
from midspan.tools.workers.address import HostAddress, keep_alive
from midspan.tools.workers.connection import WorkerConnection
from midspan.tools.workers.protocol import VERSION, Register
from midspan.tools.workers.setup import PoolOptions

_log = logging.getLogger("midspan.tools.workers")

_RETRY_SECONDS = 1.0
_MAX_UNREGISTERED = 64
"""Connections whose token is not known yet. Others are accepted later: each may need some memory."""
OnWorker = Callable[[WorkerConnection], object]


class Listener:
    """Listens at one address, in the event loop of its pool."""

    def __init__(
        self,
        options: PoolOptions,
        workers: Collection[WorkerConnection],
        *,
        on_connected: OnWorker,
        on_registered: OnWorker,
    ) -> None:
        """`workers` are the registered workers of the pool; it changes."""
        self.address: HostAddress | None = None
        """Where it listens; None before `start`."""
        self._options = options
        self._workers = workers
        self._on_connected = on_connected
        self._on_registered = on_registered
        self._server: socket.socket | None = None
        self._unregistered: set[WorkerConnection] = set()

    def start(self) -> None:
        """Accept workers. It does nothing if it has been called before."""
        if self.address is not None:
            return
        address = self._options.address
        assert address is not None, "the pool listens"
        try:
            server = address.listen()
        except OSError as error:
            raise ConfigError(f"cannot listen at {address}: {error.strerror or error}") from error
        self.address = address.bound_to(server)
        server.listen()
        server.setblocking(False)
        self._server = server
        self._listen()

    def close(self) -> None:
        """Accept no more workers."""
        if self._server is not None and self.address is not None:
            asyncio.get_running_loop().remove_reader(self._server)
            self._server.close()
            self._server = None
            self.address.remove()

    def _listen(self) -> None:
        if self._server is not None and len(self._unregistered) < _MAX_UNREGISTERED:
            asyncio.get_running_loop().add_reader(self._server, self._accept, self._server)

    def _accept(self, server: socket.socket) -> None:
        try:
            connection, _ = server.accept()
        except OSError as error:  # it has gone again, or this process has too many open files
            _log.warning("a worker could not connect: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(server)
            loop.call_later(_RETRY_SECONDS, self._listen)
            return
        if connection.family != socket.AF_UNIX:
            keep_alive(connection)
        worker = WorkerConnection(connection, None, self._options.limits, self._register)
        worker.loop.call_later(self._options.limits.start_seconds, self._close_unregistered, worker)
        self._unregistered.add(worker)
        worker.ended.add_done_callback(lambda _: self._forget(worker))
        if len(self._unregistered) >= _MAX_UNREGISTERED:
            worker.loop.remove_reader(server)
        self._on_connected(worker)

    def _forget(self, worker: WorkerConnection) -> None:
        """Make room for another connection: this one has registered, or it has ended."""
        if worker in self._unregistered:
            self._unregistered.remove(worker)
            self._listen()

    def _close_unregistered(self, worker: WorkerConnection) -> None:
        if not worker.is_registered:
            worker.kill("closed")

    def _register(self, worker: WorkerConnection, message: Register) -> None:
        """Add a worker to the pool, or refuse it."""
        problem = None
        if not hmac.compare_digest(message.token.encode(), self._options.token.encode()):
            problem = "its token is wrong"
        elif message.version != VERSION:
            problem = f"it speaks version {message.version} of the protocol, and this host speaks {VERSION}"
        elif message.error is not None or not message.tools:
            problem = message.error or "it has no tools"
        else:
            used = {name: tool for other in self._workers for name, tool in other.tools.items()}
            other = [name for name, tool in worker.tools.items() if used.get(name, tool).spec != tool.spec]
            if other:
                problem = f"another worker has registered {other[0]!r} with another declaration"
        if problem is None:
            self._forget(worker)
            self._on_registered(worker)
        else:
            _log.warning("a worker was refused: %s", problem)
            worker.refuse(problem)
