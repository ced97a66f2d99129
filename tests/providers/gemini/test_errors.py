import json
from typing import Any

import pytest

from midspan import errors
from midspan.providers.gemini.errors import blocked_error, parse_error


def body(code: int, message: str = "words", status: str = "X", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, **more}}


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


def per(period: str) -> dict[str, Any]:
    return detail("QuotaFailure", violations=[{"quotaId": f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier"}])


@pytest.mark.requirement("S1-15")
@pytest.mark.parametrize(
    ("status", "document", "kind", "retryable"),
    [
        (400, body(400), errors.InvalidRequestError, False),
        (400, body(400, details=[detail("ErrorInfo", reason="API_KEY_INVALID")]), errors.AuthenticationError, False),
        (401, body(401), errors.AuthenticationError, False),
        (403, body(403), errors.PermissionDeniedError, False),
        (404, body(404, "models/x is not found for API version v1"), errors.UnknownModelError, False),
        (404, body(404, "CachedContent not found"), errors.InvalidRequestError, False),
        (429, body(429), errors.RateLimitError, True),
        (429, body(429, details=[per("Minute")]), errors.RateLimitError, True),
        (429, body(429, details=[per("Day")]), errors.QuotaExhaustedError, False),
        (499, body(499), errors.ServerError, True),
        (500, body(500), errors.ServerError, True),
        (501, body(501), errors.ServerError, False),
        (503, body(503), errors.ServerError, True),
        (504, body(504), errors.ServerError, True),
        (200, body(429), errors.RateLimitError, True),
        (413, body(413), errors.InvalidRequestError, False),
    ],
)
def test_each_status_is_an_error_of_its_own_type(
    status: int, document: Any, kind: type[errors.ProviderError], retryable: bool
) -> None:
    for form in (document, [document]):
        error = parse_error(status, json.dumps(form).encode())
        assert type(error) is kind
        assert error.status == document["error"]["code"]
        assert error.retryable is retryable
        assert document["error"]["message"] in str(error)


@pytest.mark.parametrize(
    ("details", "header", "delay"),
    [
        ([detail("RetryInfo", retryDelay="38s")], None, 38.0),
        ([detail("RetryInfo", retryDelay="1.5s")], 9.0, 1.5),
        ([], 9.0, 9.0),
        ([detail("RetryInfo", retryDelay="soon")], None, None),
        ([detail("RetryInfo")], None, None),
        ([], None, None),
    ],
)
def test_error_has_the_delay_of_its_details_or_else_of_its_headers(
    details: Any, header: float | None, delay: float | None
) -> None:
    error = parse_error(429, json.dumps(body(429, details=details)).encode(), header)
    assert error.retry_delay_seconds == delay


def test_fields_that_the_server_complains_about_are_named() -> None:
    violations = [{"field": "contents[0]", "description": 'Unknown name "x"'}]
    error = parse_error(400, json.dumps(body(400, details=[detail("BadRequest", fieldViolations=violations)])).encode())
    assert isinstance(error, errors.InvalidRequestError)
    assert error.violations == (("contents[0]", 'Unknown name "x"'),)
    assert error.details[0]["fieldViolations"] == violations


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (b"<html><style>b{}</style><h1>502</h1>\n<p>Bad  Gateway</p></html>", "Gemini answered 502: 502 Bad Gateway"),
        (b"upstream connect error", "upstream connect error"),
        (b"", "no message"),
        (b"\xff\xfe", "Gemini answered 502"),
        (b"null", "null"),
        (b'{"error": "quota"}', "quota"),
        (b'{"error": {}}', "no message"),
        (b'{"error": {"details": [5, null], "code": "x"}}', "no message"),
    ],
)
def test_an_error_body_of_any_form_becomes_a_message(page: bytes, words: str) -> None:
    error = parse_error(502, page)
    assert type(error) is errors.ServerError
    assert words in str(error)


@pytest.mark.parametrize("page", [b"<p>" + b"x" * 100_000, b"<script>" * 100_000, b"<" * 1_000_000, b"[" * 100_000])
def test_a_long_page_is_cut(page: bytes) -> None:
    assert len(str(parse_error(502, page))) < 500


def test_long_error_messages_are_truncated() -> None:
    error = parse_error(400, json.dumps(body(400, "x" * 1_000_000, "Y" * 1_000)).encode())
    assert str(error) == (
        f"Gemini answered 400 {'Y' * 80}… [cut: the first 80 of 1,000 characters]: "
        f"{'x' * 4_000}… [cut: the first 4,000 of 1,000,000 characters]"
    )
    assert "cut" not in str(parse_error(400, json.dumps(body(400, "x" * 4_000)).encode()))
    assert len(str(parse_error(500, json.dumps({"error": "x" * 1_000_000}).encode()))) < 5_000
    assert len(str(parse_error(500, json.dumps({"error": {"message": ["x" * 1_000_000]}}).encode()))) < 5_000
    assert len(str(blocked_error({"blockReason": "R" * 10_000, "blockReasonMessage": "x" * 1_000_000}))) < 5_000


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://new.example/v1beta/m?key=secret", "'https://new.example/v1beta/m'"),
        ("//u:secret@new.example/m#secret", "'//new.example/m'"),
        ("/other/m", "'/other/m'"),
        ("", "''"),
        ("http://secret@secret@new.example", "'http://new.example'"),
        ("http://\udcff/\n", r"'http://�/\n'"),
    ],
)
@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_that_names_its_target(status: int, location: str, target: str) -> None:
    error = parse_error(status, b"<h1>Moved</h1>", None, location)
    assert type(error) is errors.InvalidRequestError
    assert str(error) == (
        f"Gemini answered {status}: moved to {target}; redirects are not followed, pass the right base_url=…"
    )


def test_a_redirect_with_a_long_or_missing_target_is_an_error() -> None:
    assert len(str(parse_error(302, b"", None, "/" * 1_000_000))) < 700
    assert str(parse_error(304, b"")) == "Gemini answered 304: no message"
    for status in (400, 503):
        assert str(parse_error(status, b"busy", None, "/elsewhere")) == f"Gemini answered {status}: busy"


@pytest.mark.parametrize(
    "details",
    [5, [5], [{"reason": {}}], [{"violations": 5}], [{"fieldViolations": 5}], {"a": 1}, [{"fieldViolations": [5]}]],
)
def test_malformed_error_details_are_ignored(details: Any) -> None:
    for status in (400, 429):
        assert "words" in str(parse_error(status, json.dumps(body(status, details=details)).encode()))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"status": "INVALID_ARGUMENT"}, errors.InvalidRequestError),
        ({"code": 8}, errors.RateLimitError),
        ({"code": 14}, errors.ServerError),
        ({"status": "UNAUTHENTICATED", "code": 16}, errors.AuthenticationError),
        ({"code": 400}, errors.InvalidRequestError),
        ({"code": 400, "status": "UNAVAILABLE"}, errors.InvalidRequestError),
        ({"code": 399}, errors.ServerError),
        ({"code": "429"}, errors.RateLimitError),
    ],
)
def test_rpc_status_names_and_numbers_are_understood(error: Any, kind: type[errors.ProviderError]) -> None:
    assert type(parse_error(500, json.dumps({"error": error}).encode())) is kind
