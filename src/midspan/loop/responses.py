"""What a response without usable content means: retry it with a message to the model, or give up."""

from msgspec.structs import replace

from midspan.errors import AnswerBlocked, NoAnswer, ProviderError
from midspan.loop.policy import Calls, Fail, Policy, Refusal, Refusals, Retry, Verdict
from midspan.loop.state import MAX_FAILED_TURNS, RunState, has_no_answer, is_empty
from midspan.tools.error_results import UNREADABLE
from midspan.types.exchange import FinishReason, ModelResponse
from midspan.types.messages import Message

NO_RESPONSE = ModelResponse(Message("model", ()), FinishReason.CUT)
"""Stands for a response that broke off before its end."""


class ResponsePolicy(Policy):
    """Asks again after malformed, empty, cut and unexpected responses, at most MAX_FAILED_TURNS times in a row."""

    def __init__(self, *, calls_only: bool) -> None:
        self._calls_only = calls_only

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        reason = response.finish_reason
        if reason is FinishReason.BLOCKED or (reason is FinishReason.REFUSED and has_no_answer(response.message)):
            return Fail(_blocked(response))
        if state.calls:
            return None
        retry = _retry(response, after_results=bool(state.tool_runs))
        # A model that was asked for its answer may give it in words after all.
        calls_only = self._calls_only and not state.tools_withdrawn
        if retry is None and calls_only:
            retry = Retry("the model answered with text", "Do not answer with text. Call one of your functions.")
        if retry is None or isinstance(retry, Fail) or not state.retries_exhausted:
            return retry
        if response.finish_reason is FinishReason.END and not is_empty(response.message) and not calls_only:
            return None  # there is content, although none that we can read
        return Fail(NoAnswer(f"{retry.reason}, {state.failed_turns + 1} times in a row"))


def _retry(response: ModelResponse, *, after_results: bool) -> Verdict:
    detail = f": {response.finish_message}" if response.finish_message else ""
    has_text = not has_no_answer(response.message)
    match response.finish_reason:
        case FinishReason.CUT:
            return Retry("the response was cut off")
        case FinishReason.MALFORMED_CALL:
            return Retry(
                f"the model made a malformed call{detail}",
                f"Your last function call could not be read{detail}. "
                "Make it again with arguments that are valid JSON of the declared schema, or answer.",
            )
        case FinishReason.UNEXPECTED_CALL:
            return Retry(
                f"the model made a call that it may not make{detail}",
                "You tried to call a function that is not available now. Answer with the information you have.",
            )
        case FinishReason.CONTINUES:
            return Retry("the model paused", "Continue exactly where you stopped.")
        case FinishReason.LENGTH if not has_text:
            return Fail(NoAnswer("the model used up its tokens before it answered; raise max_tokens in the settings"))
        case FinishReason.CONTEXT_FULL if not has_text:
            return Fail(NoAnswer("the context window was full before the model answered; shorten the conversation"))
    if has_text:
        return None
    if after_results:
        return Retry(
            "the model said nothing after the results",
            "You have the results of your calls. Answer the question with them now, or make the next call.",
        )
    return Retry("the model said nothing", "Your answer was empty. Answer the question.")


class UnreadableCallPolicy(Policy):
    """Refuses calls whose arguments are not valid JSON, or may be incomplete because the response was cut off."""

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        if state.unreadable_turns < MAX_FAILED_TURNS or len(self.refuse(state, state.unanswered)) < len(state.calls):
            return None
        times = state.unreadable_turns + 1
        return Fail(NoAnswer(f"the model made calls whose arguments cannot be read, {times} times in a row"))

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        refusals = {
            index: Refusal(f"was not run: {call.arguments_error}. Call it again with valid arguments.", UNREADABLE)
            for index, call in calls
            if call.arguments_error is not None
        }
        if calls and state.finish_reason in INCOMPLETE:
            refusals.setdefault(len(state.calls) - 1, _CUT_CALL)
        return refusals


_CUT_CALL = Refusal(
    "was not run: the response was cut off, so the arguments may be incomplete. Call it again, with less text.",
    UNREADABLE,
)
INCOMPLETE = (FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED)


def _blocked(response: ModelResponse) -> AnswerBlocked:
    """Return the error for a response that a filter stopped or the model declined; asking again would not help."""
    detail = f": {response.finish_message}" if response.finish_message else ""
    reason = f" ({response.raw_finish_reason})" if response.raw_finish_reason else ""
    what = (
        "the model declined to answer"
        if response.finish_reason is FinishReason.REFUSED
        else "a filter stopped the model"
    )
    return AnswerBlocked(f"{what}{reason}{detail}", response.raw_finish_reason)


def broken_response(error: ProviderError | None) -> ModelResponse:
    """Return a response that was cut off. Requests that were completed before the error count, with their tokens."""
    partial = None if error is None else error.partial_response
    if partial is None:
        return NO_RESPONSE
    return replace(NO_RESPONSE, usage=partial.usage, requests=partial.requests + 1)
