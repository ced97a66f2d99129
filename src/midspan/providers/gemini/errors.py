"""Error responses of the server as exceptions: a body of any form becomes one error with the server's own message."""

import re
from typing import Any

import msgspec

from midspan import errors
from midspan._types.texts import MAX_MESSAGE_CHARS, truncate
from midspan.providers.errors import describe_redirect, error_for_status, parse_seconds, read_body

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
    code, name = error.get("code"), error.get("status")
    if isinstance(code, int) and code >= 400:
        status = code
    elif isinstance(name, str) and name in RPC_STATUSES:
        status = RPC_STATUSES[name][1]
    elif isinstance(code, int):
        status = _HTTP_BY_NUMBER.get(code, status)
    shown = f"{status} {truncate(name, 80)}" if isinstance(name, str) else status
    message = f"Gemini answered {shown}: {truncate(str(error.get('message') or 'no message'))}"
    details = _objects(error.get("details"))
    delay = _retry_delay(details) or delay
    if "API_KEY_INVALID" in [detail.get("reason") for detail in details]:
        return errors.AuthenticationError(message, status=status, details=details)
    if status == 429 and _is_daily_quota(details):
        return errors.QuotaExhaustedError(message, status=status, details=details, retry_delay_seconds=delay)
    if status == 404 and "models/" in message:
        return errors.UnknownModelError(message, status=status, details=details)
    result = error_for_status(status, message, details=details, delay=delay)
    if isinstance(result, errors.InvalidRequestError):
        violations = [item for detail in details for item in _objects(detail.get("fieldViolations"))]
        result.violations = tuple((str(item.get("field", "")), str(item.get("description", ""))) for item in violations)
    return result


def blocked_error(feedback: dict[str, Any]) -> errors.PromptBlockedError:
    """Return the error for a prompt that a filter blocked."""
    reason = truncate(str(feedback.get("blockReason", "unknown reason")), 80)
    why = truncate(str(feedback.get("blockReasonMessage") or "change the prompt or the safety settings"))
    return errors.PromptBlockedError(f"Gemini blocked the prompt ({reason}): {why}", status=200, details=[feedback])


def _error_object(body: bytes) -> dict[str, Any]:
    """Return the error in a body. If the body is not an error of the API, its text is the message."""
    document = read_body(body)
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        return error
    return {"message": error if isinstance(error, str) else _text_of_page(body)}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def _text_of_page(body: bytes) -> str:
    """Return the beginning of an HTML page or of plain text, without tags."""
    text = _TAG.sub(" ", body[:MAX_MESSAGE_CHARS].decode("utf-8", "replace"))
    return truncate(" ".join(text.split()), _MAX_PAGE)


def _retry_delay(details: list[dict[str, Any]]) -> float | None:
    for detail in details:
        if str(detail.get("@type", "")).endswith("google.rpc.RetryInfo"):
            return parse_seconds(str(detail.get("retryDelay")).removesuffix("s"))
    return None


def _is_daily_quota(details: list[dict[str, Any]]) -> bool:
    violations = (violation for detail in details for violation in _objects(detail.get("violations")))
    return any("PerDay" in str(violation.get("quotaId")) for violation in violations)
