"""Errors as the API reports them: a status, a message, and details that clients read."""

from collections.abc import Sequence
from typing import Any

import msgspec

from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.errors import RPC_STATUSES

STATUS_NAMES = {
    **{http_status: name for name, (_, http_status) in RPC_STATUSES.items()},
    400: "INVALID_ARGUMENT",
    500: "INTERNAL",
    502: "UNAVAILABLE",
}
"""By HTTP status."""
DETAIL_TYPE = "type.googleapis.com/google.rpc."


class ApiError(Exception):
    """An error response of the API."""

    def __init__(self, code: int, message: str, details: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": STATUS_NAMES[self.code]}
        if self.details:
            error["details"] = self.details
        return msgspec.json.format(msgspec.json.encode({"error": error}), indent=2) + b"\n"


def invalid(message: str) -> ApiError:
    """The request breaks a rule of the API."""
    return ApiError(400, message)


def invalid_fields(errors: Sequence[tuple[str, str]], api: Api) -> ApiError:
    """Fields of a request break a rule: for each its path and a message."""
    if api is Api.VERTEX:
        lines = "\n".join(f"  * {path}: [FIELD_INVALID] {message}" for path, message in errors)
        return invalid(f"The GenerateContentRequest proto is invalid:\n{lines}")
    return invalid("".join(f"* GenerateContentRequest.{path}: {message}\n" for path, message in errors))


def invalid_json(violations: Sequence[tuple[str, str]]) -> ApiError:
    """The JSON does not describe a request: for each violation its path and a message."""
    listed = [{"field": path, "description": message} for path, message in violations]
    details = [{"@type": f"{DETAIL_TYPE}BadRequest", "fieldViolations": listed}]
    return ApiError(400, "\n".join(message for _, message in violations), details)


def error_page(status: int) -> bytes:
    """The HTML with which a front end answers, instead of the API."""
    return (
        f"<!DOCTYPE html>\n<html lang=en>\n<title>Error {status}!!1</title>\n"
        f"<p><b>{status}.</b> <ins>That is an error.</ins>\n"
    ).encode()
