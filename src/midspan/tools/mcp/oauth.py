"""Authorization by OAuth, as the SDK does it, with the tokens in a file that only its owner can read."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from midspan._storage.files import replace_file
from midspan.errors import ConfigError

if TYPE_CHECKING:
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

AUTHORIZATION_SECONDS = 300.0
"""How long a user may take in the browser."""
_REQUEST_SECONDS = 10.0
"""How long a browser may take to send its request after it has connected."""
_CALLBACK_PATH = "/callback"
_PAGE = b"Midspan is authorized. You can close this page."


class OAuth(Struct, frozen=True):
    """How to get tokens for a server: `MCPServer(url=…, auth=OAuth("tokens.json", open_url=show))`.

    `open_url` is an async function that shows a URL to the user, whose browser is sent back to a port of this machine.
    Without it, only stored tokens are used and refreshed.
    """

    token_file: str | Path
    open_url: Callable[[str], Awaitable[None]] | None = None
    scope: str | None = None
    client_id: str | None = None
    """Of a client that is registered already; otherwise the client registers itself."""
    client_secret: str | None = None

    def provider(self, url: str) -> "OAuthClientProvider":
        """Return the authentication of the SDK for a server."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        storage = _TokenFile(Path(self.token_file), url, self)
        metadata = OAuthClientMetadata.model_validate(
            {"redirect_uris": [storage.redirect_uri], "client_name": "Midspan", "scope": self.scope}
        )
        listener = _CallbackListener(storage.redirect_uri)

        async def show(authorization_url: str) -> None:
            if self.open_url is None:
                raise ConfigError("the server requires OAuth authorization; pass open_url=… to OAuth")
            await listener.start()
            try:
                await self.open_url(authorization_url)
            except BaseException:
                listener.close()
                raise

        return OAuthClientProvider(url, metadata, storage, show, listener.wait)


class _Entry(Struct):
    """What is stored for one server."""

    port: int
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None


class _TokenFile:
    """The tokens and the client registration of one server, in a file for all servers."""

    def __init__(self, path: Path, url: str, settings: OAuth) -> None:
        self._path = path
        self._url = url
        self._settings = settings
        entry = self._read().get(url)
        self._port = _free_port() if entry is None else entry.port

    @property
    def redirect_uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{_CALLBACK_PATH}"

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        entry = self._entry()
        return None if entry.tokens is None else OAuthToken.model_validate(entry.tokens)

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        self._update(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        from mcp.shared.auth import OAuthClientInformationFull

        settings, entry = self._settings, self._entry()
        if settings.client_id is not None:
            fields = {"client_id": settings.client_id, "client_secret": settings.client_secret}
            method = "none" if settings.client_secret is None else "client_secret_post"
            fields |= {"redirect_uris": [self.redirect_uri], "token_endpoint_auth_method": method}  # type: ignore[dict-item]
            return OAuthClientInformationFull.model_validate(fields)
        return None if entry.client is None else OAuthClientInformationFull.model_validate(entry.client)

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        self._update(client=client_info.model_dump(mode="json", exclude_none=True))

    def _entry(self) -> _Entry:
        return self._read().get(self._url) or _Entry(self._port)

    def _update(self, **changes: Any) -> None:
        entries = self._read()
        entries[self._url] = msgspec.structs.replace(entries.get(self._url) or _Entry(self._port), **changes)
        try:
            replace_file(self._path, msgspec.json.encode(entries), mode=0o600)
        except OSError as error:
            raise ConfigError(f"cannot save tokens in {str(self._path)!r}: {error.strerror}") from error

    def _read(self) -> dict[str, _Entry]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Entry])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"cannot read tokens from {str(self._path)!r}: {error}") from error


class _CallbackListener:
    """Waits for the browser, which the authorization server sends back with a code."""

    def __init__(self, redirect_uri: str) -> None:
        self._port = urlsplit(redirect_uri).port
        self._server: asyncio.Server | None = None
        self._query: asyncio.Future[dict[str, list[str]]] | None = None

    async def start(self) -> None:
        """Listen, before the user is sent away."""
        query: asyncio.Future[dict[str, list[str]]] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    target = (await reader.readline()).decode(errors="replace").split(" ")[1:2]
                parts = urlsplit(target[0] if target else "")
                if parts.path == _CALLBACK_PATH and not query.done():
                    query.set_result(parse_qs(parts.query))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + _PAGE)
            except TimeoutError:
                pass
            finally:
                writer.close()

        self._query = query
        self._server = await asyncio.start_server(answer, "127.0.0.1", self._port)

    async def wait(self) -> "AuthorizationCodeResult":
        """Return what the authorization server sent. Raises ConfigError if the user declined."""
        from mcp.client.auth import AuthorizationCodeResult

        assert self._server is not None, "it listens since the user was asked"
        assert self._query is not None, "as above"
        try:
            async with asyncio.timeout(AUTHORIZATION_SECONDS):
                fields = {name: values[0] for name, values in (await self._query).items()}
        finally:
            self.close()
        if "code" not in fields:
            reason = fields.get("error_description") or fields.get("error") or "no code was sent"
            raise ConfigError(f"the user did not authorize the client: {reason}")
        return AuthorizationCodeResult(code=fields["code"], state=fields.get("state"), iss=fields.get("iss"))

    def close(self) -> None:
        """Stop listening. Open connections are not waited for: a browser may keep one without sending anything."""
        if self._server is not None:
            self._server.close()


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
