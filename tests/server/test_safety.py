"""Who may use the server and what it reveals: tokens, owners, Host and Origin, limits, malformed requests."""

import json
import random
import socket
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from midspan import Agent, SqliteJournal, tool
from midspan._server.config import AccessTokens, ServerConfig
from midspan._server.openapi import OPERATIONS
from midspan.errors import ConfigError
from midspan.messages import ToolCall
from midspan.server import create_app
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.server.serving import Served, bearer, serving, sum_agent, wait_until
from tests.server.test_runs import Gate, connected

ANN, BOB = "ann-secret-token-0001", "bob-secret-token-0002"
TOKENS = {"ann": ANN, "bob": BOB}


@pytest.mark.requirement("H-08")
def test_owners_cannot_see_stop_or_continue_what_belongs_to_others(tmp_path: Path) -> None:
    gate = Gate()
    with serving(gate.agent(), tokens=TOKENS, journal=SqliteJournal(tmp_path / "j.db")) as server:
        running = server.post("/api/v1/runs", {"prompt": "Secret.", "session_id": "s"}, ANN).json()["run_id"]
        assert gate.entered.wait(BOUND)
        paths = {"run_id": running, "session_id": "s", "model": "none"}
        for operation in OPERATIONS:
            if operation.body is not None:
                continue  # below
            response = server.client.request(operation.method, operation.path.format(**paths), headers=bearer(BOB))
            assert "Secret" not in response.text, operation
            assert running not in response.text.replace(operation.path.format(**paths), "").replace(
                f"there is no run '{running}'", ""
            ), operation
            if operation.parameters and operation.parameters[0] in ("run_id", "session_id"):
                assert response.status_code in (404, 204), operation
                if response.status_code == 204:
                    assert operation.path.endswith("/stream"), operation
        assert server.get(f"/api/v1/runs/{running}", ANN).json()["state"] == "running"
        gate.open.set()
        wait_until(lambda: server.get(f"/api/v1/runs/{running}", ANN).json()["state"] == "completed")

        # The same name is another session for another owner.
        mine = server.post("/api/v1/chat", {"prompt": "Mine.", "session_id": "s"}, BOB)
        ui = {"id": "s", "messages": [{"role": "user", "parts": [{"type": "text", "text": "More."}]}]}
        server.post("/api/v1/ui/chat", ui, BOB)
        forged = {"id": f"call_{running}_0", "type": "function", "function": {"name": "wait", "arguments": "{}"}}
        completion = server.post(
            "/v1/chat/completions",
            {
                "messages": [
                    {"role": "user", "content": "Hi."},
                    {"role": "assistant", "tool_calls": [forged]},
                    {"role": "tool", "tool_call_id": forged["id"], "content": "x"},
                ]
            },
            BOB,
        )
        assert (mine.status_code, completion.status_code) == (200, 200)
        provider: Any = server.app.service.agent.provider
        assert not any("Secret" in str(request.history.messages) for request in provider.requests[2:])
        assert [item["runs"] for item in server.get("/api/v1/sessions", BOB).json()["sessions"]] == [2]
        assert [item["runs"] for item in server.get("/api/v1/sessions", ANN).json()["sessions"]] == [1]
        assert server.client.delete("/api/v1/sessions/s", headers=bearer(BOB)).status_code == 204
        assert server.get("/api/v1/sessions/s", ANN).status_code == 200


def test_every_endpoint_but_the_open_ones_demands_a_token() -> None:
    paths = {"run_id": "r", "session_id": "s", "model": "m"}
    with serving(sum_agent(), tokens=TOKENS) as server:
        for headers in (
            {},
            bearer("wrong-token-wrong-token"),
            {"Authorization": f"Basic {ANN}"},
            {"Authorization": "Bearer"},
        ):
            for operation in OPERATIONS:
                path = operation.path.format(**paths)
                response = server.client.request(operation.method, path, headers=headers, json={})
                assert response.status_code == (200 if path == "/health" else 401), operation
                if response.status_code == 401:
                    assert response.headers["www-authenticate"] == "Bearer"
            assert server.client.get("/openapi.json", headers=headers).status_code == 200
        assert server.get("/api/v1/tools", ANN).status_code == 200


def test_tokens_are_read_from_the_environment_and_kept_as_hashes(tmp_path: Path) -> None:
    tokens = AccessTokens.of_environment({"MIDSPAN_TOKENS": f"ann:{ANN}, {BOB}"})
    assert (len(tokens), tokens.owner(ANN), tokens.owner("x")) == (2, "ann", None)
    owner = tokens.owner(BOB)
    assert owner is not None
    assert BOB not in owner
    assert ANN not in str(vars(tokens))
    (tmp_path / "tokens").write_text(f"ann:{ANN}\n{BOB}\n")
    assert AccessTokens.of_environment({"MIDSPAN_TOKENS_FILE": str(tmp_path / "tokens")}).owner(BOB) == owner
    assert len(AccessTokens.of_environment({})) == 0


@pytest.mark.parametrize(
    "text", ["short", "a b:c", "ann:" + "é" * 20, f"ann:{ANN},ann:{BOB}", f"ann:{ANN},bob:{ANN}", f"a/b:{ANN}"]
)
def test_unusable_tokens_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AccessTokens.of_text(text)
    assert ANN not in str(raised.value)


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ({"ann": ANN, "bob": ANN}, "'ann' and 'bob' have the same token"),
        ({"ann": ""}, "a token must be printable ASCII"),
        ({"ann": "é" * 20}, "a token must be printable ASCII"),
        ({"ann": None}, "a token must be printable ASCII"),
        ({"ann": "x"}, "a token has fewer than 16 characters"),
    ],
)
def test_tokens_of_a_program_are_checked_too(tokens: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        create_app(sum_agent(), tokens=tokens)
    assert ANN not in str(raised.value)


@pytest.mark.requirement("H-03")
def test_other_addresses_demand_tokens_or_an_explicit_flag() -> None:
    none, some = AccessTokens(), AccessTokens(TOKENS)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(ConfigError, match="MIDSPAN_TOKENS"):
            ServerConfig(host=host).check_exposed(none)
        ServerConfig(host=host).check_exposed(some)
        ServerConfig(host=host, allow_anonymous=True).check_exposed(none)
    for host in ("127.0.0.1", "localhost", "::1"):
        ServerConfig(host=host).check_exposed(none)


def test_host_header_is_checked() -> None:
    with serving(sum_agent()) as server:
        for host in ("localhost", "127.0.0.1:8081", "[::1]:80", "LOCALHOST:1"):
            assert server.client.get("/health", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:8081", "127.0.0.1.evil.example", "localhost.", ""):
            assert server.client.get("/health", headers={"Host": host}).status_code == 403
    with serving(sum_agent(), allowed_hosts=["api.example"]) as server:
        assert server.client.get("/health", headers={"Host": "api.example:443"}).status_code == 200
        assert server.client.get("/health").status_code == 403


def test_pages_of_other_origins_are_refused_and_cors_is_off() -> None:
    with serving(sum_agent()) as server:
        own = server.url.partition("://")[2]
        for origin in ("https://evil.example", "null", f"http://evil.example/{own}", "http://127.0.0.1:1"):
            response = server.client.post("/api/v1/chat", json={"prompt": "Hi."}, headers={"Origin": origin})
            assert response.status_code == 403
            assert "access-control-allow-origin" not in response.headers
        assert server.client.get("/health", headers={"Origin": server.url}).status_code == 200
        assert server.client.options("/api/v1/chat", headers={"Origin": "https://evil.example"}).status_code == 403


@pytest.mark.requirement("S2-13", "H-03")
def test_configured_origins_get_cors() -> None:
    page = "https://chat.example"
    with serving(sum_agent(), cors_origins=[page], tokens=TOKENS) as server:
        preflight = {"Origin": page, "Access-Control-Request-Method": "POST"}
        allowed = server.client.options(
            "/api/v1/chat", headers={**preflight, "Access-Control-Request-Headers": "authorization,content-type"}
        )
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, page)
        answer = server.client.get("/api/v1/tools", headers={"Origin": page, **bearer(ANN)})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)
        other = server.client.get("/api/v1/tools", headers={"Origin": "https://evil.example", **bearer(ANN)})
        assert (other.status_code, other.headers.get("access-control-allow-origin")) == (403, None)


def test_large_bodies_and_prompts_are_refused() -> None:
    with serving(sum_agent(), max_body_bytes=2_000, max_prompt_chars=1_000) as server:
        assert server.post("/api/v1/chat", {"prompt": "x" * 1_001}).status_code == 413
        assert server.post("/api/v1/chat", {"prompt": "x" * 3_000}).status_code == 413
        ui = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "x" * 1_001}]}]}
        assert server.post("/api/v1/ui/chat", ui).status_code == 413
        completion = {"messages": [{"role": "user", "content": "x" * 1_001}, {"role": "user", "content": "Hi."}]}
        assert server.post("/v1/chat/completions", completion).status_code == 413

        def pieces() -> Any:
            yield b'{"prompt": "'
            for _ in range(50):
                yield b"x" * 100
            yield b'"}'

        headers = {"Content-Type": "application/json"}
        assert server.client.post("/api/v1/chat", content=pieces(), headers=headers).status_code == 413
        assert server.post("/api/v1/chat", {"prompt": "1 + 2?"}).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HT",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_client_that_sends_too_slowly_is_cut(sent: bytes) -> None:
    with serving(sum_agent(), request_timeout=0.2) as server, connected(server) as connection:
        connection.sendall(sent)
        received = b""
        while piece := connection.recv(1_000):
            received += piece
        assert received == b"" or b" 408 " in received


def test_line_breaks_between_requests_keep_no_connection_open() -> None:
    with serving(sum_agent(), request_timeout=0.2) as server, connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while not received.endswith(b'{"status":"healthy"}'):
            received += connection.recv(1_000)
        connection.sendall(b"\r\n")
        assert connection.recv(1_000) == b""


@pytest.mark.parametrize("path", ["/api/v1/chat", "/mcp"])
def test_client_that_leaves_before_the_end_of_its_body_is_no_error(path: str, caplog: pytest.LogCaptureFixture) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
    with serving(sum_agent()) as server:
        with connected(server) as connection:
            connection.sendall(head.encode())
        wait_until(lambda: path in server.get("/metrics").text)
        assert 'status="499"' in server.get("/metrics").text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_text_of_an_internal_error_reaches_no_client() -> None:
    @tool
    def fail() -> None:
        """Fail."""
        raise ValueError("hunter2")

    agent = Agent(ScriptedProvider(lambda _: ToolCall("c1", "fail", {})), [fail], raise_tool_errors=True)
    ask = [{"role": "user", "content": "1 + 2?"}]
    with serving(agent) as server:
        plain = server.post("/api/v1/chat", {"prompt": "1 + 2?"}).text
        run_id = server.get("/api/v1/runs").json()["runs"][0]["run_id"]
        for text in (
            plain,
            server.get(f"/api/v1/runs/{run_id}/events?view=final").text,
            server.post("/v1/chat/completions", {"messages": ask}).text,
            server.post("/v1/chat/completions", {"messages": ask, "stream": True}).text,
        ):
            assert "the server could not process the request; its log says why" in text
            assert "hunter2" not in text


def test_endless_headers_are_cut() -> None:
    with serving(sum_agent()) as server, connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall((b"X-Filler: " + b"x" * 1_000 + b"\r\n") * 20_000)


MALFORMED_REQUESTS = 5_000


@pytest.mark.requirement("H-09")
@pytest.mark.timeout(600)
def test_thousands_of_malformed_requests_crash_nothing_and_reveal_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(23)
    model = ScriptedProvider(lambda request: "fine")
    leaks = (str(tmp_path), "Traceback", "site-packages", '.py", line', ANN, "midspan._server")
    with serving(Agent(model), tokens=TOKENS, journal=SqliteJournal(tmp_path / "j.db")) as server:
        statuses: set[int] = set()
        for number in range(MALFORMED_REQUESTS):
            if number % 5 == 4:
                text = _raw_exchange(server, source)
            else:
                response = server.client.request(**_malformed(source))
                statuses.add(response.status_code)
                text = f"{response.headers}{response.text}"
                assert response.status_code < 500, text
            assert not [leak for leak in leaks if leak in text], text
        assert {400, 401, 404, 405, 415} <= statuses
        assert server.get("/health").status_code == 200
        assert server.post("/api/v1/chat", {"prompt": "Hi."}, ANN).json()["response"] == "fine"
        assert not [record for record in caplog.records if record.exc_info]
        assert ANN not in caplog.text


def _malformed(source: random.Random) -> dict[str, Any]:
    """A request that is HTTP, and otherwise mostly wrong."""
    paths = [operation.path for operation in OPERATIONS] + ["/", "/mcp", "/metrics", "/%00", "/../etc/passwd", "/v1/"]
    values = {name: source.choice(["x", "%2e%2e", "run_0123456789abcdef", "ü", "'", "%00", "a" * 300]) for name in
              ("run_id", "session_id", "model")}  # fmt: skip
    path = source.choice(paths).format(**values)
    body: bytes = source.choice(
        [b"", b"{", b"null", b"[]", b'{"prompt":', b"\x00", b"\xff\xfe", b'{"prompt": {"a": [' + b"[" * 500, b'"x"']
    )
    if source.random() < 0.5:
        fields = source.sample(
            ["prompt", "session_id", "model", "provider", "stream", "context", "messages", "tools", "id", "n"], 3
        )
        odd = [None, True, -1, 1e400, "\ud800", "", [], {}, [{}], [{"role": "user"}], {"a": 1}, "a" * 200, 2**70]
        body = json.dumps({field: source.choice(odd) for field in fields}).encode()
    headers = {
        "Authorization": source.choice([f"Bearer {ANN}", f"Bearer {ANN}", f"Bearer {ANN}x", "Bearer", "x"]),
        "Content-Type": source.choice(["application/json", "application/json", "text/plain", "", "a/b"]),
        "Last-Event-ID": source.choice(["0", "-1", "x", "9" * 40]),
    }
    method = source.choice(["GET", "POST", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "ODD"])
    query = source.choice(["", "?limit=0", "?limit=x&after=y", "?state=odd", "?view=%ff", "?after=-1", "?&&==%"])
    return {"method": method, "url": path + query, "content": body, "headers": headers}


def _raw_exchange(server: Served, source: random.Random) -> str:
    """Send bytes that are hardly HTTP, and return what comes back."""
    request = bytearray(
        b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer " + ANN.encode() + b"\r\nContent-Length: 2\r\n\r\n{}"
    )
    for _ in range(source.randint(1, 6)):
        request[source.randrange(len(request))] = source.randrange(256)
    if source.random() < 0.3:
        del request[source.randrange(len(request)) :]
    with connected(server) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(BOUND)
        received = b""
        try:
            while piece := connection.recv(10_000):
                received += piece
                if b"\r\n\r\n" in received:
                    break
        except OSError:
            pass
    return received.decode("latin-1")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"max_runs": 0}, "max_runs"), ({"hosts": []}, "unknown setting 'hosts'"), ({"port": 70_000}, "port")],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        create_app(sum_agent(), **settings)


def test_own_authentication_decides_about_owners() -> None:
    def authenticate(headers: Any) -> str | None:
        name = headers.get("x-user")
        return None if name is None else f"user-{name}"

    with serving(sum_agent(), authenticate=authenticate) as server:
        assert server.get("/api/v1/runs").status_code == 401
        with httpx.Client(base_url=server.url, headers={"x-user": "ann"}) as ann:
            ann.post("/api/v1/chat", json={"prompt": "1 + 2?"})
            assert len(ann.get("/api/v1/runs").json()["runs"]) == 1
        with httpx.Client(base_url=server.url, headers={"x-user": "bob"}) as bob:
            assert bob.get("/api/v1/runs").json()["runs"] == []


def test_only_the_name_of_an_owner_lets_a_request_in() -> None:
    answers: Any = iter([False, True, 5, "", "ann"])
    with serving(sum_agent(), authenticate=lambda _: next(answers)) as server:
        assert [server.get("/api/v1/runs").status_code for _ in range(5)] == [401, 401, 401, 401, 200]


def test_async_authentication_is_refused() -> None:
    async def authenticate(_: Any) -> str:
        return "ann"

    with pytest.raises(ConfigError, match="authenticate must be a sync function"):
        create_app(sum_agent(), authenticate=authenticate)  # type: ignore[arg-type]
