"""Proxies and certificates from environment variables, with a real proxy and real TLS on loopback."""

import asyncio
import base64
import shutil
import ssl
import subprocess
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from midspan._http.routes import proxy_for
from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import ConfigError, NetworkError, RequestTimeoutError
from tests.bounds import BOUND
from tests.http import misbehaving
from tests.http.misbehaving import Server
from tests.http.test_errors import everything_shown, run
from tests.listening import listening

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUEST_METHOD")
SECRET = "sesame-42"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    alternatives = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *alternatives], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


class Proxy:
    """Notes what it is asked, and tunnels as CONNECT says or forwards to the host that the first line names."""

    def __init__(self, refuses: bytes = b"") -> None:
        self.asked, self.heads, self._refuses = list[str](), list[bytes](), refuses

    @asynccontextmanager
    async def running(self, context: ssl.SSLContext | None = None) -> AsyncIterator["Proxy"]:
        async with listening(self._serve, ssl=context) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            method, target, _ = head.split(b" ", 2)
            self.asked.append(f"{method.decode()} {target.decode()}")
            if self._refuses:
                writer.write(self._refuses)
                await reader.read()
                return
            place = target if method == b"CONNECT" else target.split(b"/")[2]
            host, port = place.decode().split(":")
            there = await asyncio.open_connection(host, int(port))
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                there[1].write(head)
            try:
                await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))
            finally:
                there[1].close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(2**16):
        writer.write(piece)
        await writer.drain()
    writer.close()


def post(url: str) -> HttpRequest:
    return HttpRequest("POST", f"{url}?key={SECRET}", {"x-goog-api-key": SECRET}, b"{}")


def test_untrusted_certificate_is_an_error_that_names_ssl_cert_file(certificate: Path) -> None:
    async def main() -> None:
        async with Server(misbehaving.answer, context=tls(certificate)) as server, Transport() as transport:
            with pytest.raises(NetworkError, match=r"not trusted: self.signed certificate.*SSL_CERT_FILE") as caught:
                await transport.send(post(server.url))
            assert not caught.value.retryable
            assert SECRET not in everything_shown(caught.value)
            await server.until_all_gone()

    run(main())


def test_certificates_in_ssl_cert_file_are_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        async with Server(misbehaving.answer, context=tls(certificate)) as server, Transport() as transport:
            for _ in range(3):
                assert (await transport.send(post(server.url))).status == 200
            assert server.accepted == 1
            by_name = post(server.url.replace("127.0.0.1", "localhost"))
            assert (await transport.send(by_name)).status == 200

    run(main())


def test_tls_handshake_offers_http_1_1(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers refuse clients that name no protocol."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = tls(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def main() -> None:
        async with Server(misbehaving.answer, context=context) as server, Transport() as transport:
            await transport.send(post(server.url))
            assert [exchange.alpn_protocol for exchange in server.requests] == ["http/1.1"]

    run(main())


def test_request_is_sent_again_if_its_idle_tls_connection_was_closed(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def once(exchange: misbehaving.Exchange) -> None:
        await (misbehaving.answer(exchange) if exchange.number == 1 else misbehaving.close_before_head(exchange))

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        async with Server(once, context=tls(certificate)) as server, Transport() as transport:
            for _ in range(4):
                assert (await transport.send(post(server.url))).status == 200

    run(main())


@pytest.mark.parametrize("with_tls", [False, True])
def test_reading_a_small_piece_allocates_no_large_buffer(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, *, with_tls: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        context = tls(certificate) if with_tls else None
        async with Server(misbehaving.drip, context=context) as server, Transport() as transport:
            async with transport.stream(post(server.url)) as answer:
                await anext(answer)
                tracemalloc.start()
                try:
                    for _ in range(3):
                        await anext(answer)
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
            assert peak < 2**17, "the C library would ask the system for it, and give it back, for each piece"

    run(main())


def test_leaving_a_tls_stream_early_closes_its_connection(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        async with Server(misbehaving.drip, context=tls(certificate)) as server, Transport() as transport:
            async with transport.stream(post(server.url)) as answer:
                await anext(answer)
            await server.until_all_gone()

    run(main())


def test_certificates_of_ssl_cert_dir_are_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(certificate)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(certificate, tmp_path / f"{name}.0")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))

    async def main() -> None:
        async with Server(misbehaving.answer, context=tls(certificate)) as server, Transport() as transport:
            assert (await transport.send(post(server.url))).status == 200

    run(main())


def test_connection_to_a_proxy_that_refuses_a_tunnel_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(exchange: misbehaving.Exchange) -> None:
        await exchange.send(misbehaving.response(b"", "407 Proxy Authentication Required"))

    async def main() -> None:
        async with Server(refuse) as proxy, Transport() as transport:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
            with pytest.raises(NetworkError, match="refused the connection with status 407"):
                await transport.send(post("https://example.invalid/"))
            await proxy.until_all_gone()

    run(main())


def test_unreadable_ssl_cert_file_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")

    async def main() -> None:
        for name in ("missing.pem", "empty.pem"):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
            with pytest.raises(ConfigError, match=f"SSL_CERT_FILE.*{name}"):
                await Transport().send(post("https://127.0.0.1:1/"))

    run(main())


def test_plain_http_server_behind_an_https_url_is_a_tls_error() -> None:
    async def speak_plainly(exchange: misbehaving.Exchange) -> None:
        await exchange.send(misbehaving.response(b"plain", "400 Bad Request"))
        await exchange.until_gone()

    async def main() -> None:
        async with Server(misbehaving.answer, on_connection=speak_plainly) as server, Transport() as transport:
            with pytest.raises(NetworkError, match="TLS handshake with"):
                await transport.send(post(server.url.replace("http:", "https:")))
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_https_request_goes_through_a_proxy_tunnel(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        async with Server(misbehaving.answer, context=tls(certificate)) as server, Proxy().running() as proxy:
            monkeypatch.setenv(variable, f"http://user:{SECRET}@127.0.0.1:{proxy.port}")
            async with Transport() as transport:
                for _ in range(2):
                    assert (await transport.send(post(server.url))).status == 200
            assert proxy.asked == [f"CONNECT 127.0.0.1:{server.port}"]
            expected = base64.b64encode(f"user:{SECRET}".encode())
            assert b"Proxy-Authorization: Basic " + expected in proxy.heads[0]
            assert b"x-goog-api-key" not in proxy.heads[0]
            await server.until_all_gone()

    run(main())


def test_proxy_can_be_reached_by_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> None:
        context = tls(certificate)
        async with Server(misbehaving.answer, context=context) as server, Proxy().running(context) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"https://user:{SECRET}@127.0.0.1:{proxy.port}")
            async with Transport() as transport:
                assert (await transport.send(post(server.url))).status == 200
            assert proxy.asked == [f"CONNECT 127.0.0.1:{server.port}"]
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", r"the response of the proxy for example\.org:443 is not valid HTTP"),
        (
            b"HTTP/1.1 200 Conn",
            r"the proxy for example\.org:443 closed the connection without a response",
        ),
    ],
)
def test_invalid_response_of_a_proxy_is_a_retryable_error(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    async def answer_and_close(exchange: misbehaving.Exchange) -> None:
        await exchange.send(answer)
        exchange.close()

    async def main() -> None:
        async with Server(answer_and_close) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@127.0.0.1:{proxy.port}")
            async with Transport() as transport:
                with pytest.raises(NetworkError, match=words) as caught:
                    await transport.send(post("https://example.org/"))
                assert caught.value.retryable
                assert SECRET not in everything_shown(caught.value)
            await proxy.until_all_gone()

    run(main())


def test_http_request_goes_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Proxy().running() as proxy:
            monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
            async with Transport() as transport:
                assert (await transport.send(post(server.url))).status == 200
            assert proxy.asked == [f"POST {server.url}?key={SECRET}"]

    run(main())


def test_no_proxy_excludes_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Proxy().running() as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
            async with Transport() as transport:
                await transport.send(post(server.url))
                monkeypatch.delenv("NO_PROXY")
                await transport.send(post(server.url))
            assert proxy.asked == []

    run(main())


def test_proxy_errors_name_the_proxy_but_not_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        refusing = Proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        async with refusing.running() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@127.0.0.1:{proxy.port}")
            async with Transport() as transport:
                with pytest.raises(
                    NetworkError, match=r"the proxy for example\.org:443 refused the connection with status 407"
                ) as caught:
                    await transport.send(post("https://example.org/"))
                assert not caught.value.retryable
                assert SECRET not in everything_shown(caught.value)
        with misbehaving.refusing_port() as port:
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@127.0.0.1:{port}")
            transport = Transport()
            with pytest.raises(NetworkError, match="cannot connect to the proxy set in HTTPS_PROXY") as caught:
                await transport.send(post("https://example.org/"))
            assert SECRET not in everything_shown(caught.value)

    run(main())


def test_silent_proxy_ends_with_the_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as server:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
            async with Transport(Timeouts(connect=0.05)) as transport:
                with pytest.raises(RequestTimeoutError, match=r"example\.org:443 .* timeout 'connect'"):
                    await transport.send(post("https://example.org/"))
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize(
    ("settings", "url", "proxy"),
    [
        ({}, "https://a.org/", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.org/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a.org/", None),
        ({"HTTPS_PROXY": "p:1"}, "https://a.org/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:1"}, "https://a.org/", "http://q:1"),
        ({"HTTPS_PROXY": ""}, "https://a.org/", None),
        ({"ALL_PROXY": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "https://a.org/", "http://q:1"),
        ({"ALL_PROXY": "http://p:1"}, "http://a.org/", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://a.org/", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": ".org"}, "http://a.org/", None),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "a.org:8080"}, "http://a.org:8080/", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org"}, "http://user@a.org/", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org"}, "http://ba.org/", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": " b.org , .A.org"}, "http://www.a.org/", None),
        ({"HTTP_PROXY": "http://p:1", "https_proxy": ""}, "https://a.org/", None),
        ({"HTTP_PROXY": "http://client-header:1", "REQUEST_METHOD": "GET"}, "http://a.org/", None),
        ({"http_proxy": "http://p:1", "REQUEST_METHOD": "GET"}, "http://a.org/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "https://a.org/", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "http://a.org/", "http://p:1"),
    ],
)
def test_proxy_is_chosen_by_scheme_and_host(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], url: str, proxy: str | None
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


def test_unsupported_proxy_scheme_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"socks5://user:{SECRET}@127.0.0.1:{int(BOUND)}")
    with pytest.raises(ConfigError, match="'socks5'") as caught:
        proxy_for("https://a.org/")
    assert SECRET not in str(caught.value)
