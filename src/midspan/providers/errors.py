"""Errors of services, in responses and in streams, as exceptions of `midspan.errors`; each service has its codes."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from midspan import errors
from midspan._types.texts import truncate
from midspan.providers.reading import READ_ERRORS, read_json, value_at
from midspan.providers.rest import Response

Codes = Mapping[str, type[errors.ProviderError]]
_STATUSES = frozenset(map(str, range(400, 600)))


def parse_error(service: str, codes: Codes, response: Response, body: bytes) -> errors.ProviderError:
    """Return the error that a response with an error status reports."""
    code, text = _error_fields(read_body(body), codes)
    message = f"{service} answered {response.status}: {text or body[:200].decode(errors='replace').strip()}"
    error_type = _error_type(codes, code, response.status, text)
    if error_type is None:
        return status_error(response, message)
    return error_type(message, status=response.status, retry_delay_seconds=retry_delay(response))


def read_body(body: bytes) -> Any:
    """Return the JSON document of an error response; None if it is not JSON."""
    try:
        document, _ = read_json(body)
    except READ_ERRORS:
        return None
    return document[0] if isinstance(document, list) and document else document  # a list as Google writes it


def event_error(service: str, codes: Codes, name: str, item: Any) -> errors.ProviderError | None:
    """Return the error that an event of a stream reports."""
    if not isinstance(item, dict) or (not item.get("error") and name != "error" and item.get("type") != "error"):
        return None
    code, text = _error_fields(item if item.get("error") else {"error": item}, codes)
    message = f"{service} sent an error: {text or item}"
    # A stream has no status, but some services write one as the code.
    status = int(code) if code in _STATUSES else 500
    error_type = _error_type(codes, code, status, text)
    return error_for_status(status, message) if error_type is None else error_type(message)


def _error_type(codes: Codes, code: str, status: int, message: str) -> type[errors.ProviderError] | None:
    """Return the type of an error whose code is known, or whose status has a special meaning here."""
    if code in codes:
        return codes[code]
    if status == 402:
        return errors.QuotaExhaustedError
    return errors.UnknownModelError if status == 404 and "model" in message else None


def _error_fields(document: Any, known: Codes) -> tuple[str, str]:
    """Return the code and the message of an error; services write them in several places."""
    error = value_at(document, "error")
    fields = error if isinstance(error, dict) else document
    codes = [str(code) for name in ("code", "type") if (code := value_at(fields, name))]
    message = value_at(fields, "message") if fields is error or not error else error
    return next((code for code in codes if code in known), "".join(codes[:1])), str(message or "")


def status_error(response: Response, message: str) -> errors.ProviderError:
    """Return the error that the status of a response usually means, with the delay that its headers ask for."""
    location = response.header("location") if 300 <= response.status < 400 else None
    if location:
        message += f" ({describe_redirect(location)})"
    return error_for_status(response.status, message, delay=retry_delay(response))


_STATUS_ERRORS = {401: errors.AuthenticationError, 403: errors.PermissionDeniedError, 429: errors.RateLimitError}


def error_for_status(
    status: int, message: str, *, details: Sequence[Any] = (), delay: float | None = None
) -> errors.ProviderError:
    """Return the error that a status usually means."""
    if status in _STATUS_ERRORS:
        return _STATUS_ERRORS[status](message, status=status, details=details, retry_delay_seconds=delay)
    if 300 <= status < 500 and status not in (408, 499):
        return errors.InvalidRequestError(message, status=status, details=details)
    error = errors.ServerError(message, status=status, details=details, retry_delay_seconds=delay)
    error.retryable = status != 501  # Not Implemented: a retry would get the same response
    return error


def describe_redirect(location: str) -> str:
    """Describe a redirect; the query, a user name and a password in its URL may be secrets and are left out."""
    target = re.sub(r"//[^/]*@", "//", re.split(r"[?#]", location)[0])
    return f"moved to {truncate(target, 400)!r}; redirects are not followed, pass the right base_url=…"


def retry_delay(response: Response) -> float | None:
    """Return the seconds that the headers `retry-after-ms` or `retry-after` ask for; None if they do not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1)):
        value = response.header(name)
        if value is not None and (seconds := parse_seconds(value)) is not None:
            return seconds * unit
    return None


def parse_seconds(value: str) -> float | None:
    """Parse a number of seconds, or a date as the seconds until then; None if it is neither, or negative."""
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime  # slow to import, and rarely needed

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
        seconds = max(seconds, 0.0)  # a date in the past
    return seconds if 0 <= seconds < float("inf") else None
