"""The server process: uvicorn with timeouts for slow clients, an orderly shutdown, JSON logs."""

import asyncio
import logging
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from midspan._http.serving import url_of
from midspan._server.app import ServerApp
from midspan._server.config import ServerConfig
from midspan._server.http import ABORT
from midspan.errors import ConfigError

_MAX_HEADER_BYTES = 64 * 1024
_SECONDS_FOR_RESPONSES = 3
"""After the runs have ended, how long their last responses may take."""
_TICK_SECONDS = 0.1
_LOG_FIELDS = ("run_id", "call_id", "tool")


class ServerConnection(HttpToolsProtocol):
    """A connection that is closed if the headers of a request are too slow or too large.

    uvicorn has no settings for this and does not document the base class, so pyproject.toml bounds uvicorn's version.
    """

    header_timeout = 30.0
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _is_in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as of the base class
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._is_in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_in_headers and self._header_bytes > _MAX_HEADER_BYTES:
            self.transport.abort()
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_headers()  # line breaks between requests stop uvicorn's timer, and begin no request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._header_bytes = False, 0
        self._stop_timer()
        self.scope["extensions"] = {ABORT: {"abort": self.transport.abort}}
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        self._is_in_headers = True
        self._stop_timer()
        self._timer = self.loop.call_later(self.header_timeout, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A uvicorn server that lets the runs end before it waits for the responses."""

    def __init__(self, app: ServerApp, config: ServerConfig, on_start: Callable[[str], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                loop="auto",
                http=type("TimedConnection", (ServerConnection,), {"header_timeout": config.request_timeout}),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_SECONDS_FOR_RESPONSES,
            )
        )
        self._app = app
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            self._on_start(self.url)

    @property
    def url(self) -> str:
        return url_of(*self.servers[0].sockets[0].getsockname()[:2])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the runs or cancel them, then end the connections. New requests get 503 meanwhile."""
        closing = asyncio.get_running_loop().create_task(self._app.aclose())
        while not closing.done() and not self.force_exit:
            await asyncio.wait((closing,), timeout=_TICK_SECONDS)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - of a signal handler
        """Begin the shutdown; a second Ctrl-C ends it. Unlike uvicorn's, the process exits with 0 afterwards."""
        self._app.service.is_draining = True
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(app: ServerApp, config: ServerConfig, listener: socket.socket, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_start` gets the URL."""
    server = Server(app, config, on_start)
    try:
        server.run([listener])
    except SystemExit as error:
        if server.started:
            raise
        raise ConfigError("the server could not start; the reason is in the log above") from error  # uvicorn logged it


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. `run_id`, `call_id` and `tool` are there if the record has them."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in _LOG_FIELDS if (value := getattr(record, name, None))}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = {"type": type(error).__name__, "message": str(error)}
            line["traceback"] = "".join(traceback.format_exception(error))
        return msgspec.json.encode(line, enc_hook=str).decode("utf-8", "replace")


def log_json(level: int = logging.INFO) -> None:
    """Write the log of the library and of uvicorn to stderr as JSON lines, and nothing else of it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("midspan", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.setLevel(level)
        log.propagate = False
