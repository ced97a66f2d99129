"""Calls that the server shall check while they are written: it compiles the schemas for that, and refuses large ones.

The same tools pass where the model writes freely, so that is asked for then. Whether a call fits its schema is looked
at here in any case. A call that is demanded, mode ANY, stays demanded: without it the answer would be another one.
"""

import logging

from msgspec.structs import replace

from midspan.errors import InvalidRequest
from midspan.types.exchange import ModelRequest, Setup
from midspan.types.specs import ToolChoice

_log = logging.getLogger("midspan.providers.gemini")

_TOO_LARGE = "too many states"
_SAYS_NOTHING = "Request contains an invalid argument."
"""What the server says to many a fault, and to this one as well."""
_LOOSER = "gemini loosened"
"""Where a setup keeps the one that is asked with instead, so that the refusal is met once and not in every turn."""


def served(request: ModelRequest) -> ModelRequest:
    """The request as the server takes it, as far as that is known."""
    looser: Setup | None = request.setup.__dict__.get(_LOOSER)
    return request if looser is None else replace(request, setup=looser)


def loosened(request: ModelRequest, error: InvalidRequest) -> ModelRequest:
    """The same request with calls that nobody checks on the way, if that may help; else the error is raised."""
    setup, words = request.setup, str(error)
    choice = setup.tool_choice
    is_certain = _TOO_LARGE in words
    # Beside built-in tools the server takes no other mode.
    if choice is None or choice.mode != "validated" or setup.has_builtins or error.status != 400:
        raise error
    if not is_certain and not words.endswith(_SAYS_NOTHING):
        raise error
    _log.warning("the tools are too large to be validated by the server, so the model calls them freely")
    looser = replace(setup, tool_choice=ToolChoice("auto"))
    if is_certain:
        setup.__dict__[_LOOSER] = looser
    return replace(request, setup=looser)
