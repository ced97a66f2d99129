"""Host and Origin headers that a server accepts, and addresses that it cannot listen on."""

import pytest

from midspan._http.serving import LOOPBACK_HOSTS, LOOPBACK_ORIGINS, AllowedOrigins, listen
from midspan.errors import ConfigError

LOCAL = LOOPBACK_HOSTS, LOOPBACK_ORIGINS
PUBLIC = ("API.example", "db.example:81", "[::2]:81"), ("https://chat.example/",)
ANYONE = ("*",), ("*",)


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "refused"),
    [
        (LOCAL, "localhost", None, None),
        (LOCAL, "LOCALHOST:8081", None, None),
        (LOCAL, "[::1]:80", "http://[::1]:3000", None),
        (LOCAL, "127.0.0.1", "https://localhost", None),
        (LOCAL, "", None, "host"),
        (LOCAL, "localhost.", None, "host"),
        (LOCAL, "127.0.0.1.evil.example", None, "host"),
        (LOCAL, "evil.example", "http://evil.example", "host"),
        (LOCAL, "localhost", "null", "origin"),
        (LOCAL, "localhost", "", "origin"),
        (LOCAL, "localhost", "http://localhost.evil.example", "origin"),
        (LOCAL, "localhost", "http://localhost:80@evil.example", "origin"),
        (PUBLIC, "api.example:443", "https://chat.example", None),
        (PUBLIC, "api.example:443", "HTTPS://API.example:443", None),
        (PUBLIC, "api.example", "https://chat.example:444", "origin"),
        (PUBLIC, "api.example", "http://chat.example", "origin"),
        (PUBLIC, "db.example:81", None, None),
        (PUBLIC, "db.example", None, "host"),
        (PUBLIC, "localhost", None, "host"),
        (PUBLIC, "[::2]:81", None, None),
        (PUBLIC, "[::2]", None, "host"),
        (ANYONE, "", "null", None),
    ],
)
def test_hosts_and_origins_must_be_allowed(
    allowed: tuple[tuple[str, ...], tuple[str, ...]], host: str, origin: str | None, refused: str | None
) -> None:
    assert AllowedOrigins.of(*allowed).refused_header(host, origin) == refused


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("no-such-host.invalid", 0, "cannot resolve 'no-such-host.invalid'"),
        ("two..dots", 0, "cannot resolve 'two..dots'"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1:0: cannot assign requested address"),
        ("127.0.0.1", 70_000, "cannot listen on 127.0.0.1:70000: the port must be from 0 to 65535"),
    ],
)
def test_address_that_cannot_be_used_is_an_error(host: str, port: int, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        listen(host, port)
    assert str(raised.value) == message


@pytest.mark.parametrize(("host", "address"), [("", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")])
def test_server_listens_on_the_address_of_its_host(host: str, address: str) -> None:
    with listen(host, 0) as listener:
        assert listener.getsockname()[0] == address
