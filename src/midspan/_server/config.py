"""The settings of the server, and the tokens that it accepts."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from midspan._http.serving import ANY, LOOPBACK_HOSTS, AllowedOrigins
from midspan._types.texts import check_token
from midspan.errors import ConfigError

ANONYMOUS = "anonymous"
"""The owner of everything on a server without tokens."""
OWNER = "midspan_owner"
"""Where the scope of a request has its owner."""
_TOKEN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server behaves. `midspan serve --config FILE` reads the same names from a TOML file."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8081
    models: tuple[str, ...] = ()
    """Models that a request may name, in addition to the model of the agent."""
    allow_anonymous: bool = False
    """Accept requests without a token although other machines can reach the server."""
    allowed_hosts: tuple[str, ...] | None = None
    """Values of the Host header, without the port. None: those of this machine, and `host`."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages on other servers that may use this one."""
    max_body_bytes: Count = 4 * 2**20
    max_prompt_chars: Count = 100_000
    max_runs: Count = 256
    """Runs at once."""
    max_runs_per_token: Count = 64
    max_run_seconds: Seconds = 600.0
    request_timeout: Seconds = 30.0
    """How long a client may take to send the headers, and then the body."""
    send_timeout: Seconds = 30.0
    """How long a send may block because the client does not read."""
    heartbeat_seconds: Seconds = 15.0
    """How often a quiet stream sends a comment, so that proxies keep it open."""
    shutdown_seconds: Annotated[float, Meta(ge=0)] = 20.0
    """How long running runs may take to end when the server shuts down."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK_HOSTS

    def check_exposed(self, tokens: "AccessTokens") -> None:
        """Raise ConfigError if other machines could use the server without a token."""
        if not (self.is_local or tokens or self.allow_anonymous):
            raise ConfigError(
                f"{self.host} can be reached by other machines; set MIDSPAN_TOKENS to the tokens that clients must "
                "send, or allow everybody with --allow-anonymous"
            )

    def allowed_origins(self, *, has_tokens: bool) -> AllowedOrigins:
        """Return the allowed values of the Host and Origin headers.

        Web pages cannot send a token that they do not have, so DNS rebinding is only a danger without tokens.
        """
        hosts = self.allowed_hosts
        if hosts is None:
            is_open = not self.is_local and (has_tokens or self.host in ("0.0.0.0", "::", ""))  # noqa: S104 - compared
            hosts = (ANY,) if is_open else (*LOOPBACK_HOSTS, self.host)
        return AllowedOrigins.of(hosts, self.cors_origins)


class AccessTokens:
    """The tokens that clients send, each with the name of its owner. Only hashes are kept."""

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        """`tokens` has the token of each owner. Raises ConfigError if one is weak, or two owners have the same."""
        owners: dict[bytes, str] = {}
        for owner, token in (tokens or {}).items():
            check_token(token)
            other = owners.setdefault(_digest(token), owner)
            if other != owner:
                raise ConfigError(f"{other!r} and {owner!r} have the same token; give each owner a token of its own")
        self._owners = list(owners.items())

    @classmethod
    def of_text(cls, text: str) -> "AccessTokens":
        """Return the tokens of a text such as `token1,ann:token2`: separated by commas or white space.

        What a token without a name owns is stored under a part of its hash.
        """
        tokens: dict[str, str] = {}
        for item in re.findall(r"[^\s,]+", text):
            owner, colon, token = item.partition(":")
            if not colon:
                owner, token = f"token-{_digest(item).hex()[:16]}", item
            if not _TOKEN_NAME.fullmatch(owner):
                raise ConfigError("the name of an owner has up to 64 letters, digits and `_.-`, as in name:token")
            if owner in tokens:
                raise ConfigError(f"there are two tokens for {owner!r}")
            tokens[owner] = token
        return cls(tokens)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "AccessTokens":
        """Return the tokens of MIDSPAN_TOKENS, or of the file that MIDSPAN_TOKENS_FILE names."""
        text = environment.get("MIDSPAN_TOKENS", "")
        path = environment.get("MIDSPAN_TOKENS_FILE", "")
        if path and not text.strip():
            try:
                text = Path(path).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise ConfigError(f"cannot read MIDSPAN_TOKENS_FILE {path!r}: {reason}") from error
        return cls.of_text(text)

    def __len__(self) -> int:
        return len(self._owners)

    def authenticate(self, headers: Mapping[str, str]) -> str | None:
        """Return the owner of a request. Without tokens, everybody is the same owner."""
        if not self._owners:
            return ANONYMOUS
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self.owner(token.strip()) if scheme.lower() == "bearer" else None

    def owner(self, token: str) -> str | None:
        """Return the owner of a token. The time that this takes does not depend on how similar the token is."""
        digest = _digest(token)
        matching_owner: str | None = None
        for known_digest, owner in self._owners:
            if hmac.compare_digest(known_digest, digest):
                matching_owner = owner
        return matching_owner


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
