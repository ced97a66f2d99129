"""A plain HTTP client of the emulator, and builders for the JSON of requests."""

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.bounds import BOUND

DEVELOPER = "/v1beta/models/{}:{}"
VERTEX = "/v1beta1/projects/p/locations/us-central1/publishers/google/models/{}:{}"


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])

    @property
    def parts(self) -> list[Any]:
        return list(self.json["candidates"][0]["content"].get("parts", ()))


def send(url: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
    """Send one request on a new connection; `body` is JSON unless it is bytes."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=BOUND)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        connection.request(method, place.path + path, data, {"x-goog-api-key": "k"} if headers is None else headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    finally:
        connection.close()


def ask(url: str, body: Any, model: str = "gemini-3.8-flash", path: str = DEVELOPER) -> Reply:
    return send(url, "POST", path.format(model, "generateContent"), body)


def stream(url: str, body: Any, model: str = "gemini-3.8-flash", query: str = "?alt=sse") -> Reply:
    return send(url, "POST", DEVELOPER.format(model, "streamGenerateContent") + query, body)


def raw(url: str, *pieces: bytes) -> bytes:
    """Send bytes and return everything that is received until the connection is closed or reset."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=BOUND) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        try:
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            received += b"<reset>"
        return received


def post(path: str, body: Any, *headers: str) -> bytes:
    """Return the bytes of a request with `Connection: close`."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: local", "x-goog-api-key: k", "Connection: close", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return {**user(*parts), "role": "model"}


SKIP = "skip_thought_signature_validator"


def calling(name: str = "f", *, signature: str | None = SKIP, **more: Any) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature is not None else {}
    return {"functionCall": {"name": name, "args": {}, **more}, **signed}


def result(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"result": 1}, **more}}


def tools(*declared: Any) -> list[Any]:
    return [{"functionDeclarations": [{"name": item} if isinstance(item, str) else item for item in declared]}]


def declared(schema: Any, name: str = "f") -> list[Any]:
    return tools({"name": name, "parameters": schema})


def events(reply: Reply) -> list[Any]:
    """Return the documents of a stream of server-sent events."""
    return [json.loads(event.removeprefix(b"data: ")) for event in reply.body.split(b"\r\n\r\n") if event]
