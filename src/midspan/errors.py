"""Every exception that Midspan raises, as one tree.

MidspanError
├── ConfigError                     an argument or setting that cannot work; also a ValueError
│   ├── CredentialsError            a key or token is missing or cannot be used
│   ├── SchemaError                 a schema, signature or tool declaration that cannot be used
│   ├── DuplicateToolError          two tools have the same name
│   ├── UnknownSessionError         the session does not exist
│   └── NotRecordedError            a replayed run does something that the recording does not contain
├── ArgumentError                   an argument that cannot be converted to its type; also a ValueError
├── ResultError                     a result that is not JSON serializable; also a ValueError
├── ToolError                       raised by a tool: a message for the model, which gets it as the result of its call
├── WorkerError                     a worker process could not be started, or no worker is connected
├── RunError                        a run ended without an answer
│   ├── LimitReachedError           the run reached one of its limits
│   ├── AnswerBlockedError          a filter stopped the model
│   ├── NoAnswerError               the model gave no usable answer, even after retries
│   └── OutputError                 the answer does not have the requested type
├── CodecError                      a stored document of an unknown format or of a newer version; also a ValueError
├── JournalError                    a journal could not be read or written
│   ├── UnknownRunError             the journal has no run with this id
│   ├── RunExistsError              the journal already has a run with this id
│   └── RunElsewhereError           another writer has appended to the run, or the run has ended
└── ProviderError                   a request to a model failed
    ├── AuthenticationError         the key or token is wrong
    ├── PermissionDeniedError       the key or token does not allow this
    ├── InvalidRequestError         the service does not accept the request
    │   └── UnknownModelError       the model does not exist, or does not support this method
    ├── PromptBlockedError          a safety filter blocked the prompt
    ├── RateLimitError              too many requests; retry later
    │   └── QuotaExhaustedError     the quota is used up; a retry does not help
    ├── ServerError                 the service failed
    ├── MalformedResponseError      the response does not follow the protocol of the service
    └── NetworkError                the service could not be reached, or the connection was lost
        ├── RequestTimeoutError     a timeout expired
        └── IncompleteResponseError a response ended before it was complete
"""

from collections.abc import Collection, Sequence
from typing import Any


class MidspanError(Exception):
    """The base class of all exceptions that Midspan raises."""

    transcript: Collection[Any] | None = None
    """If a run ended with this error: all messages so far. Each call has its result, so a new run can start with it."""
    kind: str | None = None
    """If the run was read from a journal or cancelled: the name of the original exception class, or `cancelled`."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is made without `__init__`, whose arguments are not always the message.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class ConfigError(MidspanError, ValueError):
    """An argument or setting that cannot work."""


class CredentialsError(ConfigError):
    """A key or token is missing or cannot be used."""

    shell_message: str | None = None
    """The same error for a user of the terminal, who cannot pass arguments to a function."""


class SchemaError(ConfigError):
    """A schema, signature or tool declaration that cannot be used."""


class DuplicateToolError(ConfigError):
    """Two tools have the same name."""


class UnknownSessionError(ConfigError):
    """The session does not exist."""


class NotRecordedError(ConfigError):
    """A replayed run does something that the recording does not contain."""


class ArgumentError(MidspanError, ValueError):
    """An argument that cannot be converted to its type, such as the 31st of February."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """Where it is, such as `stops[0].day`; empty if it is about all arguments."""
        self.problem = problem


class ResultError(MidspanError, ValueError):
    """A result that is not JSON serializable."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path.lstrip('.')}: {problem}" if path else problem)
        self.problem = problem
        self.path = path
        """Where it is in the result, such as `.items[0]`."""

    def within(self, step: str) -> "ResultError":
        """Return the same error with a path that starts one level higher."""
        return ResultError(self.problem, f"{step}{self.path}")


class ToolError(MidspanError):
    """Raise it in a tool to give the model an error message, which is passed on unchanged."""


class WorkerError(MidspanError):
    """A worker process could not be started, or no worker is connected."""


class RunError(MidspanError):
    """A run ended without an answer."""


class LimitReachedError(RunError):
    """The run reached one of its limits; `limit` is the name of the field of `Limits`."""

    def __init__(self, message: str, limit: str = "max_turns") -> None:
        super().__init__(message)
        self.limit = limit

    @property
    def type(self) -> str:
        return "turn_limit_exceeded" if self.limit == "max_turns" else f"{self.limit}_exceeded"


class AnswerBlockedError(RunError):
    """A filter stopped the model; `raw_finish_reason` is the reason that the provider gave."""

    def __init__(self, message: str, raw_finish_reason: str | None = None) -> None:
        super().__init__(message)
        self.raw_finish_reason = raw_finish_reason


class NoAnswerError(RunError):
    """The model gave no usable answer, even after retries."""


class OutputError(RunError):
    """The answer does not have the requested type."""


class CodecError(MidspanError, ValueError):
    """A stored document of an unknown format or of a newer version."""


class JournalError(MidspanError):
    """A journal could not be read or written."""


class UnknownRunError(JournalError):
    """The journal has no run with this id: it was never started, or was deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"unknown run {run!r}; it was never started, or was deleted")
        self.run = run


class RunExistsError(JournalError):
    """The journal already has a run with this id."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run_id {run!r} is already used; choose another or omit it")
        self.run = run


class RunElsewhereError(JournalError):
    """Another writer has appended to the run, or the run has ended. Nothing was appended.

    `expected` is the number of events that the writer expected to be stored, `stored` the number of those that are.
    """

    def __init__(self, run: str, expected: int, stored: int, ended: bool = False) -> None:
        state = f"has {stored} events, not {expected}; another writer has appended to it"
        super().__init__(f"run {run!r} {'has already ended' if ended else state}")
        self.run, self.expected, self.stored, self.ended = run, expected, stored, ended


class ProviderError(MidspanError):
    """A request to a model failed."""

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
        """Structured details of the error, as the service sent them."""


class AuthenticationError(ProviderError):
    """The key or token is wrong."""


class PermissionDeniedError(ProviderError):
    """The key or token does not allow this."""


class InvalidRequestError(ProviderError):
    """The service does not accept the request; `violations` are pairs of a field and what is wrong with it."""

    def __init__(self, message: str, *, violations: Sequence[tuple[str, str]] = (), **fields: Any) -> None:
        super().__init__(message, **fields)
        self.violations = tuple(violations)


class UnknownModelError(InvalidRequestError):
    """The model does not exist, or does not support this method."""


class PromptBlockedError(ProviderError):
    """A safety filter blocked the prompt."""


class RateLimitError(ProviderError):
    """Too many requests; wait `retry_delay_seconds`, if given, and try again."""

    retryable = True


class QuotaExhaustedError(RateLimitError):
    """The quota is used up; a retry does not help."""

    retryable = False


class ServerError(ProviderError):
    """The service failed."""

    retryable = True


class MalformedResponseError(ProviderError):
    """The response does not follow the protocol of the service."""

    retryable = True


class NetworkError(ProviderError):
    """The service could not be reached, or the connection was lost."""

    retryable = True


class RequestTimeoutError(NetworkError):
    """A timeout expired."""


class IncompleteResponseError(NetworkError):
    """A response ended before it was complete."""
