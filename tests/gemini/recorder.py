"""A loopback server that records every request and sends the given responses."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from tests.bounds import BOUND


class Seen(NamedTuple):
    """A recorded request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Recorder:
    """Sends the next of `answers` for each request; the last one is repeated."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self.url = ""

    def answer(self, document: Any = None, *, status: int = 200, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answers.append((status, body, {name.replace("_", "-"): value for name, value in headers.items()}))

    def answer_stream(self, *documents: Any) -> None:
        body = b"".join(b"data: %b\r\n\r\n" % json.dumps(document).encode() for document in documents)
        self.answer(body, content_type="text/event-stream")

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def last(self) -> Seen:
        return self.seen[-1]


def _body(raw: bytes, headers: dict[str, str]) -> Any:
    if headers.get("content-type") == "application/x-www-form-urlencoded":
        return dict(parse_qsl(raw.decode()))
    return json.loads(raw) if raw else None


@contextmanager
def recorder(record: Recorder | None = None) -> Iterator[Recorder]:
    record = record or Recorder()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each body waits 40 ms for its headers to be acknowledged

        def handle_any(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            record.seen.append(Seen(self.command, self.path, headers, _body(raw, headers)))
            status, body, more = record.next()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **more}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    record.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield record
    finally:
        server.shutdown()
        server.server_close()
        thread.join(BOUND)
