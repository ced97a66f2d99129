"""What the server's refusals mean: a body of any form becomes one of our errors, with the server's own words."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from midspan.errors import (
    AuthenticationError,
    InvalidRequest,
    PermissionDenied,
    PromptBlocked,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    ServerError,
    UnknownModel,
)

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST_QUOTE = 400
_LONGEST_PAGE = 4_000
_LONGEST_MESSAGE = 4_000
_LONGEST_NAME = 80
_TARGET = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?(?://[^/?#]*)?[^?#]*", re.IGNORECASE)


def parse_error(
    status: int, body: bytes | msgspec.Raw, retry_after: str | None = None, location: str | None = None
) -> ProviderError:
    """The error that a response with this status and body stands for, and with these headers."""
    if location is not None and 300 <= status < 400:
        return _error(status, f"Gemini answered {status}: {_moved(location)}", (), None)
    error = _error_object(bytes(body))
    if error is None:
        words = _words_of_page(bytes(body)) or "nothing more"
        return _error(status, f"Gemini answered {status}: {words}", (), _seconds(retry_after))
    status = _http_status(error) or status
    details = _objects(error.get("details"))
    word = error.get("status")
    name = f"{status} {_short(word, _LONGEST_NAME)}" if isinstance(word, str) else str(status)
    words = f"Gemini answered {name}: {_short(error.get('message') or 'nothing more', _LONGEST_MESSAGE)}"
    return _error(status, words, details, _retry_delay(details) or _seconds(retry_after))


def blocked_error(feedback: dict[str, Any]) -> PromptBlocked:
    """The error for a prompt that a filter held back."""
    reason = _short(feedback.get("blockReason", "unknown reason"), _LONGEST_NAME)
    why = _short(feedback.get("blockReasonMessage") or "change the prompt or the safety settings", _LONGEST_MESSAGE)
    return PromptBlocked(f"Gemini blocked the prompt ({reason}): {why}", status=200, details=[feedback])


def _error(status: int, words: str, details: Any, delay: float | None) -> ProviderError:
    reasons = [one.get("reason") for one in details]
    if status == 401 or "API_KEY_INVALID" in reasons:
        return AuthenticationError(words, status=status, details=details)
    if status == 403:
        return PermissionDenied(words, status=status, details=details)
    if status == 429:
        kind = QuotaExhausted if _used_up_for_today(details) else RateLimited
        return kind(words, status=status, details=details, retry_delay_seconds=delay)
    if status == 404 and "models/" in words:
        return UnknownModel(words, status=status, details=details)
    if 300 <= status < 500 and status not in (408, 499):
        return InvalidRequest(words, status=status, details=details, violations=tuple(_violations(details)))
    failed = ServerError(words, status=status, details=details, retry_delay_seconds=delay)
    failed.retryable = status != 501  # what it cannot do at all, it cannot do a second later
    return failed


def _error_object(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else None


# The words of google.rpc.Code, and their numbers, which some streams send instead of a status of HTTP.
_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNKNOWN": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_NUMBERS = {1: 499, 2: 500, 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 12: 501, 13: 500, 14: 503, 16: 401}


def _http_status(error: dict[str, Any]) -> int | None:
    code = error.get("code")
    if isinstance(code, int) and code >= 400:
        return code
    word = error.get("status")
    return _STATUSES.get(word if isinstance(word, str) else "") or _NUMBERS.get(code if isinstance(code, int) else 0)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _words_of_page(body: bytes) -> str:
    text = " ".join(_TAG.sub(" ", body[:_LONGEST_PAGE].decode("utf-8", "replace")).split())
    return _short(text, _LONGEST_QUOTE)


def _short(words: object, longest: int) -> str:
    text = str(words)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def _moved(location: str) -> str:
    """Where a redirect leads, without what an address may tell in its query; a name and a password are left out too."""
    found = _TARGET.match(location)
    target = re.sub(r"//[^/]*@", "//", found.group() if found else "")
    return (
        f"it is to be found at {_short(target, _LONGEST_QUOTE)!r}; redirects are not followed, "
        "so give the address that is right with base_url=…"
    )


def _retry_delay(details: list[dict[str, Any]]) -> float | None:
    for one in details:
        if str(one.get("@type", "")).endswith("google.rpc.RetryInfo"):
            return _seconds(one.get("retryDelay"))
    return None


def _seconds(text: object) -> float | None:
    """Seconds as a RetryInfo («38.2s») or a Retry-After header («38», or a date) writes them."""
    try:
        seconds = float(str(text).removesuffix("s"))
    except ValueError:
        seconds = _seconds_until(str(text))
    return seconds if 0 <= seconds < float("inf") else None


def _seconds_until(date: str) -> float:
    from datetime import datetime  # both for a form of the header that hardly anybody sends
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return -1.0
    return max(0.0, (when - datetime.now(when.tzinfo)).total_seconds())


def _used_up_for_today(details: list[dict[str, Any]]) -> bool:
    violations = (one for detail in details for one in _objects(detail.get("violations")))
    return any("PerDay" in str(one.get("quotaId")) for one in violations)


def _violations(details: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for detail in details:
        for one in _objects(detail.get("fieldViolations")):
            yield str(one.get("field", "")), str(one.get("description", ""))
