"""What the environment says about proxies and certificates."""

import os
import ssl
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # the stubs lack both

from midspan.errors import ConfigError

_PROXY_SCHEMES = ("http", "https")


class Proxies:
    """The proxies of HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in either case, as they were when it was made.

    aiohttp reads them too, but anew in a thread for each request, which costs more than the request.
    """

    def __init__(self) -> None:
        self._settings = getproxies_environment()
        self._chosen: dict[tuple[str, str], str | None] = {}

    def proxy_for(self, url: str) -> str | None:
        """The address of the proxy for this one, or None to go there directly."""
        if not self._settings:
            return None
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc.rpartition("@")[2])
        if key not in self._chosen:
            self._chosen[key] = self._choose(*key)
        return self._chosen[key]

    def _choose(self, scheme: str, host: str) -> str | None:
        proxy = self._settings.get(scheme) or self._settings.get("all")
        if not proxy or proxy_bypass_environment(host, self._settings):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if urlsplit(proxy).scheme not in _PROXY_SCHEMES:
            kind = urlsplit(proxy).scheme
            raise ConfigError(f"a proxy of the kind {kind!r} is set for {scheme}, but only http and https can be used")
        return proxy


def trusted_certificates() -> ssl.SSLContext | None:
    """The certificates that SSL_CERT_FILE and SSL_CERT_DIR name; None, where they do not, means those of the system."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        return None
    try:
        changed = Path(file).stat().st_mtime_ns if file else 0
        return _context(file or None, folder or None, changed)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"SSL_CERT_FILE names {file!r}, which is no readable file of certificates") from error


@lru_cache(maxsize=4)
def _context(file: str | None, folder: str | None, changed: int) -> ssl.SSLContext:  # noqa: ARG001 - a part of the key
    """Kept, because reading the usual bundle takes 10 ms; read again when the file has `changed`."""
    context = ssl.create_default_context(cafile=file, capath=folder)
    context.set_alpn_protocols(["http/1.1"])
    return context
