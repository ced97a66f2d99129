"""How the API says no: a status, its words, and the details that clients look at."""

from collections.abc import Sequence
from typing import Any

import msgspec

STATUS_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Refusal(Exception):
    """A request that the API does not accept, or an answer that it cannot give."""

    def __init__(self, code: int, message: str, *, status: str | None = None, details: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or STATUS_WORDS[code]
        self.details = tuple(details)

    def document(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    def body(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.document()), indent=2) + b"\n"


def invalid(message: str) -> Refusal:
    """The request is understood, and against a rule."""
    return Refusal(400, message)


def unreadable(violations: Sequence[tuple[str, str]]) -> Refusal:
    """JSON that is not the JSON of the message: for each place what is wrong there."""
    listed = [
        {"field": field, "description": words} if field else {"description": words} for field, words in violations
    ]
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": listed}]
    return Refusal(400, "\n".join(words for _, words in violations), details=details)
