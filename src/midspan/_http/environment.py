"""Proxies and certificates configured by environment variables."""

import os
import ssl
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # not in the stubs

from midspan.errors import ConfigError

_PROXY_SCHEMES = ("http", "https")


class Proxies:
    """A snapshot of HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in upper or lower case."""

    def __init__(self) -> None:
        self._settings = getproxies_environment()

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy URL to use for `url`, or None to connect directly."""
        if not self._settings:
            return None
        parts = urlsplit(url)
        proxy = self._settings.get(parts.scheme) or self._settings.get("all")
        if not proxy or proxy_bypass_environment(parts.netloc.rpartition("@")[2], self._settings):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        scheme = urlsplit(proxy).scheme
        if scheme not in _PROXY_SCHEMES:
            raise ConfigError(f"unsupported proxy scheme {scheme!r} for {parts.scheme}; use http or https")
        return proxy


def tls_context() -> ssl.SSLContext:
    """Return the TLS settings, which trust SSL_CERT_FILE and SSL_CERT_DIR or the certificates of the system."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    try:
        modified = Path(file).stat().st_mtime_ns if file else 0
        return _load_context(file, folder, modified)
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"cannot read certificates from SSL_CERT_FILE {file!r}") from error


@lru_cache(maxsize=4)
def _load_context(file: str | None, folder: str | None, modified: int) -> ssl.SSLContext:  # noqa: ARG001 - a part of the key
    """Cached, because reading a certificate bundle takes 10 ms; a `modified` file is read again."""
    context = ssl.create_default_context(cafile=file, capath=folder)
    context.set_alpn_protocols(["http/1.1"])
    return context
