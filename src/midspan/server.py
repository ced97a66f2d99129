"""The HTTP server: an agent as an ASGI application, which `midspan serve` runs."""

from midspan._server.app import ServerApp as ServerApp
from midspan._server.app import create_app as create_app
