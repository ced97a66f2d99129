"""Faults that stand in the place of an answer: errors in every form that the API and its front-ends send them."""

from midspan.emulator.faults.plan import Fault, Kind
from midspan.emulator.refusal import Refusal
from midspan.emulator.serving.replies import HTML, Reply, refused, whole

_WORDS = {
    500: "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting",
    502: "The server received an invalid response.",
    503: "The model is overloaded. Please try again later.",
    504: "The request timed out. Please try again.",
}
_PAGE = (
    b"<!DOCTYPE html>\n<html lang=en>\n  <title>Error 502 (Server Error)!!1</title>\n"
    b"  <style>body{font-family:sans-serif}</style>\n  <p><b>502.</b> <ins>That is an error.</ins>\n"
    b"  <p>The server encountered a temporary error and could not complete your request."
    b"<p>Please try again in 30 seconds.  <ins>That is all we know.</ins>\n"
)
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
_TYPE = "type.googleapis.com/google.rpc."


def reply_instead(fault: Fault, *, streaming: bool) -> Reply | None:
    """What is sent instead of an answer; None for faults that happen to one."""
    if fault.kind in (Kind.ERROR_EVENT, Kind.ERROR_BARE):
        # What is not streamed has nothing before the error that it could come within.
        return None if streaming else refused(ERROR_IN_STREAM)
    if fault.kind is Kind.HTML_PAGE:
        return whole(_PAGE, 502, HTML)
    if fault.kind is Kind.ERROR_LIST:
        return whole(b"[%b]" % Refusal(503, _WORDS[503]).body(), 503)
    refusal = refusal_of(fault)
    return None if refusal is None else refused(refusal)


def refusal_of(fault: Fault) -> Refusal | None:
    if fault.kind in _STATUSES:
        code = _STATUSES[fault.kind]
        return Refusal(code, _WORDS[code])
    if fault.kind is Kind.RATE_LIMIT:
        wait = {"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{fault.seconds:g}s"}
        words = f"{_QUOTA} Please retry in {fault.seconds:g}s."
        return Refusal(429, words, details=[_failure("GenerateRequestsPerMinutePerProjectPerModel"), _HELP, wait])
    if fault.kind is Kind.RATE_LIMIT_BARE:
        return Refusal(429, "Resource exhausted. Please try again later.")
    if fault.kind is Kind.DAILY_QUOTA:
        return Refusal(429, _QUOTA, details=[_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), _HELP])
    return None


ERROR_IN_STREAM = Refusal(503, _WORDS[503])

_STATUSES = {Kind.STATUS_500: 500, Kind.STATUS_502: 502, Kind.STATUS_503: 503, Kind.STATUS_504: 504}
_HELP = {
    "@type": f"{_TYPE}Help",
    "links": [
        {
            "description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
        }
    ],
}


def _failure(quota: str) -> dict[str, object]:
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    violation = {"quotaMetric": metric, "quotaId": quota, "quotaDimensions": {"location": "global"}, "quotaValue": "50"}
    return {"@type": f"{_TYPE}QuotaFailure", "violations": [violation]}
