"""Every exception that Midspan raises, as one tree.

MidspanError
├── ConfigError                 what the caller gave us cannot work; also a ValueError
│   ├── CredentialsError        no key or token where one is needed
│   ├── SchemaError             a schema, a signature or a tool's declaration that says nothing usable
│   ├── DuplicateTool           two tools of one name
│   ├── UnknownSession          a session that nobody opened
│   └── NotRecorded             a replayed run does what its recording does not have
├── ArgumentError               an argument that cannot become a value of its type; also a ValueError
├── ResultError                 a result that JSON cannot say; also a ValueError
├── ToolError                   raised by a tool: words for the model, who gets them as the result of its call
├── RunError                    a run ended without an answer
│   ├── LimitReached            it went as far as it may
│   ├── AnswerBlocked           a filter stopped the model in the middle
│   ├── NoAnswer                the model said nothing that can be used, however often it was asked
│   └── OutputError             what it said is not what it was asked for
├── CodecError                  a document that is not one of ours, or is newer than this version; also a ValueError
├── JournalError                a journal could not be read or written
│   ├── UnknownRun              the journal has no run with this id
│   ├── RunExists               the journal already has a run with this id
│   └── RunElsewhere            another writer has appended to the run, or the run has ended
└── ProviderError               a model's service refused, failed or broke off
    ├── AuthenticationError     the key or token is wrong
    ├── PermissionDenied        it is right, but may not do this
    ├── InvalidRequest          the service does not accept the request
    │   └── UnknownModel        there is no such model, or not for this use
    ├── PromptBlocked           the prompt was refused by a safety filter
    ├── RateLimited             too many requests; wait and try again
    │   └── QuotaExhausted      nothing left for today; waiting does not help
    ├── ServerError             the service failed
    ├── MalformedResponse       the service answered something that is not its protocol
    └── NetworkError            the service could not be reached, or went away
        ├── TimedOut            it took longer than the caller allows
        └── StreamCut           a stream ended before the model was done
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any


class MidspanError(Exception):
    """Whatever Midspan raises on purpose."""

    transcript: Collection[Any] | None = None
    """Where a run ended with it: all messages so far, every call with its result, fit to go on with."""
    kind: str | None = None
    """Of a run that is read from a journal: what the exception was called, or `cancelled`."""


class ConfigError(MidspanError, ValueError):
    """What the caller gave us cannot work."""


class CredentialsError(ConfigError):
    """No key or token was given where one is needed."""

    shell_message: str | None = None
    """The same error for a user of the terminal, who cannot pass arguments to a function."""


class SchemaError(ConfigError):
    """A schema, a signature or a declaration that says nothing usable."""


class DuplicateTool(ConfigError):
    """Two tools of one name."""


class UnknownSession(ConfigError):
    """A session that nobody opened."""


class NotRecorded(ConfigError):
    """A replayed run does what its recording does not have."""


class ArgumentError(MidspanError, ValueError):
    """An argument that cannot become a value of its type, in words for the model: the 31st of February."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """Where it is, as `stops[0].day`; empty if it is the arguments as a whole."""
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.problem)


class ResultError(MidspanError, ValueError):
    """A value that JSON cannot say, and where it is in the result."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path.lstrip('.')}: {problem}" if path else problem)
        self.problem = problem
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.path)

    def within(self, step: str) -> "ResultError":
        return ResultError(self.problem, f"{step}{self.path}")


class ToolError(MidspanError):
    """Raise it in a tool to tell the model what is wrong, in these words and no others."""


class RunError(MidspanError):
    """A run ended without an answer."""


class LimitReached(RunError):
    """A run went as far as it may; `limit` is the field of `Limits` that says how far."""

    def __init__(self, message: str, limit: str = "max_turns") -> None:
        super().__init__(message)
        self.limit = limit

    @property
    def type(self) -> str:
        return "turn_limit_exceeded" if self.limit == "max_turns" else f"{self.limit}_exceeded"


class AnswerBlocked(RunError):
    """A filter stopped the model; `raw_finish_reason` is the provider's own word for why."""

    def __init__(self, message: str, raw_finish_reason: str | None = None) -> None:
        super().__init__(message)
        self.raw_finish_reason = raw_finish_reason


class NoAnswer(RunError):
    """The model said nothing that can be used, however often it was asked."""


class OutputError(RunError):
    """What the model said is not what it was asked for."""


class CodecError(MidspanError, ValueError):
    """A document that is not one of ours, or was written by a newer version."""


class JournalError(MidspanError):
    """A journal could not be read or written."""


class UnknownRun(JournalError):
    """The journal has no run with this id: it was never started, or was deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"unknown run {run!r}; it was never started, or was deleted")
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class RunExists(JournalError):
    """The journal already has a run with this id."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run_id {run!r} is already used; choose another or omit it")
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class RunElsewhere(JournalError):
    """Another writer has appended to the run, or the run has ended. Nothing was appended."""

    def __init__(self, run: str, *, expected: int, found: int, ended: bool = False) -> None:
        state = f"has ended with {found} events" if ended else f"has {found} events, not {expected}"
        super().__init__(f"run {run!r} {state}; another writer has appended to it")
        self.run = run
        self.expected = expected
        self.found = found
        """The number of stored events."""
        self.ended = ended

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), expected=self.expected, found=self.found, ended=self.ended), (self.run,)


class ProviderError(MidspanError):
    """A model's service refused, failed or broke off."""

    retryable = False
    partial_response: Any = None
    """The ModelResponse that had arrived before the error, where a response takes several requests or is collected."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_delay_seconds: float | None = None,
        details: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_delay_seconds = retry_delay_seconds
        self.details = tuple(details)
        """What the service added to its words, as it sent it."""


class AuthenticationError(ProviderError):
    """The key or token is wrong."""


class PermissionDenied(ProviderError):
    """The key or token is right, but may not do this."""


class InvalidRequest(ProviderError):
    """The service does not accept the request; `violations` are (field, what is wrong with it)."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_delay_seconds: float | None = None,
        details: Sequence[Any] = (),
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message, status=status, retry_delay_seconds=retry_delay_seconds, details=details)
        self.violations = tuple(violations)


class UnknownModel(InvalidRequest):
    """There is no such model, or not for this use."""


class PromptBlocked(ProviderError):
    """The prompt was refused by a safety filter."""


class RateLimited(ProviderError):
    """Too many requests; wait `retry_delay_seconds`, if given, and try again."""

    retryable = True


class QuotaExhausted(RateLimited):
    """Nothing is left for today; waiting does not help."""

    retryable = False


class ServerError(ProviderError):
    """The service failed."""

    retryable = True


class MalformedResponse(ProviderError):
    """The service answered something that is not its protocol."""

    retryable = True


class NetworkError(ProviderError):
    """The service could not be reached, or went away."""

    retryable = True


class TimedOut(NetworkError):
    """The service took longer than the caller allows."""


class StreamCut(NetworkError):
    """A stream ended before the model was done."""
