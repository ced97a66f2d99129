"""Error responses of the server as exceptions: a body of any form becomes one error with the server's own message."""

import re
from typing import Any

import msgspec

from midspan import errors
from midspan._types.texts import MAX_MESSAGE_CHARS, truncate
from midspan.providers.errors import describe_redirect, error_for_status, parse_seconds, read_body
from midspan.providers.reading import count_at, objects_at, text_at, value_at

RPC_STATUSES: dict[str, tuple[int, int]] = {
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "UNAUTHENTICATED": (16, 401),
}
"""The codes of google.rpc.Code: number, and HTTP status. Some streams send the number instead of an HTTP status."""
_HTTP_BY_NUMBER = dict(RPC_STATUSES.values())
_MAX_PAGE = 400


def parse_error(
    status: int, body: bytes | msgspec.Raw, delay: float | None = None, location: str | None = None
) -> errors.ProviderError:
    """Return the error for a response with this status and body, and with the delay and location of its headers."""
    if location is not None and 300 <= status < 400:
        return error_for_status(status, f"Gemini answered {status}: {describe_redirect(location)}")
    error = _error_object(bytes(body))
    code, name = count_at(error, "code"), text_at(error, "status")
    if code >= 400:
        status = code
    elif name in RPC_STATUSES:
        status = RPC_STATUSES[name][1]
    else:
        status = _HTTP_BY_NUMBER.get(code, status)
    shown = status if name is None else f"{status} {truncate(name, 80)}"
    message = f"Gemini answered {shown}: {truncate(str(error.get('message') or 'no message'))}"
    details = objects_at(error, "details")
    delay = _retry_delay(details) or delay
    if "API_KEY_INVALID" in [detail.get("reason") for detail in details]:
        return errors.AuthenticationError(message, status=status, details=details)
    quotas = [item.get("quotaId") for detail in details for item in objects_at(detail, "violations")]
    if status == 429 and any("PerDay" in str(quota) for quota in quotas):
        return errors.QuotaExhaustedError(message, status=status, details=details, retry_delay_seconds=delay)
    if status == 404 and "models/" in message:
        return errors.UnknownModelError(message, status=status, details=details)
    result = error_for_status(status, message, details=details, delay=delay)
    if isinstance(result, errors.InvalidRequestError):
        violations = [item for detail in details for item in objects_at(detail, "fieldViolations")]
        result.violations = tuple((str(item.get("field", "")), str(item.get("description", ""))) for item in violations)
    return result


def blocked_error(feedback: dict[str, Any]) -> errors.PromptBlockedError:
    """Return the error for a prompt that a filter blocked."""
    reason = truncate(str(feedback.get("blockReason", "unknown reason")), 80)
    why = truncate(str(feedback.get("blockReasonMessage") or "change the prompt or the safety settings"))
    return errors.PromptBlockedError(f"Gemini blocked the prompt ({reason}): {why}", status=200, details=[feedback])


def _error_object(body: bytes) -> dict[str, Any]:
    """Return the error in a body. If the body is not an error of the API, the beginning of its text is the message."""
    error = value_at(read_body(body), "error")
    if isinstance(error, dict):
        return error
    page = _TAG.sub(" ", body[:MAX_MESSAGE_CHARS].decode("utf-8", "replace"))
    return {"message": error if isinstance(error, str) else truncate(" ".join(page.split()), _MAX_PAGE)}


_TAG = re.compile(r"<(script|style)\b(?:(?!<\1\b).)*?</\1>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
"""A tag of HTML. Both forms end before the next one begins, so that unclosed tags take linear time."""


def _retry_delay(details: list[dict[str, Any]]) -> float | None:
    for detail in details:
        if str(detail.get("@type", "")).endswith("google.rpc.RetryInfo"):
            return parse_seconds(str(detail.get("retryDelay")).removesuffix("s"))
    return None
