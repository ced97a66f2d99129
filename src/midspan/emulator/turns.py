"""What the rules look at in a content: who speaks, what is called, what is answered."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from midspan.emulator.signing import GENUINE, Verdict, verdict
from midspan.providers.gemini import wire

_TOKENS_OF_A_FILE = 258
_TOKENS_OF_A_CALL = 8
_ROLES = ("user", "model", "function", "tool")
_UNREADABLE_FILES = ("application/vnd.", "application/msword", "application/zip", "application/octet-stream")


class Call(Struct, frozen=True, gc=False):
    name: str
    id: str | None = None
    signature: str | None = None
    verdict: Verdict = GENUINE
    """What the signature is worth on this call."""


def called(name: str, id: str | None, signature: str | None, args: dict[str, Any] | None, place: int) -> Call:
    """A call that is the n-th of its content; an empty signature is none."""
    if not signature:
        return Call(name, id)
    return Call(name, id, signature, verdict(signature, name, args, place))


class Result(Struct, frozen=True, gc=False):
    name: str
    id: str | None = None


class Turn(Struct, frozen=True, gc=False):
    """One content; or several in a row that one side spoke."""

    role: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    speaks: bool = False
    """Holds more than calls and results."""
    tokens: int = 0
    has_media: bool = False
    """Some result holds files."""
    open_calls: int = 0
    """Calls that nobody answered within the turn itself, as the server does for tools that it runs."""
    forged: str | None = None
    """What the server says to a signature of its own that is not as it was given."""
    foreign: bool = False
    """Some signature was made elsewhere."""
    faults: tuple[tuple[str, str], ...] = ()
    """What else is wrong with it by itself: where in the content, and the server's words."""

    def joined(self, other: "Turn") -> "Turn":
        return Turn(
            self.role,
            self.calls + other.calls,
            self.results + other.results,
            self.speaks or other.speaks,
            self.tokens + other.tokens,
            open_calls=self.open_calls + other.open_calls,
        )


class Count(Struct, frozen=True, gc=False):
    """What all turns have together."""

    tokens: int = 0
    steps: int = 0
    """Turns of the model."""
    calls: bool = False
    results: bool = False
    own_results: bool = False
    """The model's own turns hold results, of tools that the server ran."""
    media: bool = False
    forged: str | None = None
    foreign: bool = False


def count_of(turns: Sequence[Turn], before: Count) -> Count:
    """What these turns have together with those before them."""
    tokens, steps, calls, results = before.tokens, before.steps, before.calls, before.results
    own_results, media, forged, foreign = before.own_results, before.media, before.forged, before.foreign
    for turn in turns:
        tokens += turn.tokens
        if turn.role == "model":
            steps += 1
            own_results = own_results or bool(turn.results)
        if turn.calls:
            calls, forged, foreign = True, forged or turn.forged, foreign or turn.foreign
        if turn.results:
            results, media = True, media or turn.has_media
    return Count(tokens, steps, calls, results, own_results, media, forged, foreign)


def turn_of(content: wire.Content) -> Turn:
    """The facts of one content."""
    calls: list[Call] = []
    results: list[Result] = []
    faults: list[tuple[str, str]] = []
    speaks = has_media = False
    tokens = 0
    for at, part in enumerate(content.parts or ()):
        if part.function_call is not None:
            call = part.function_call
            calls.append(called(call.name or "", call.id, part.thought_signature, call.args, len(calls)))
            tokens += _TOKENS_OF_A_CALL
        elif part.function_response is not None:
            result = part.function_response
            results.append(Result(result.name or "", result.id))
            has_media = has_media or bool(result.parts)
            tokens += 2 * _TOKENS_OF_A_CALL
        else:
            speaks = True
            tokens += len(part.text) // 4 + 1 if part.text is not None else _TOKENS_OF_A_FILE
        faults.extend((f"parts[{at}]{place}", words) for place, words in _faults_of(part))
    if not content.parts and (content.parts is not None or content.role != "model"):
        # A model that said nothing answers without any parts; sent back like that, it is let through.
        faults.append(("parts", "contents.parts must not be empty."))
    if content.role and content.role not in _ROLES:
        faults.append(("role", "Please use a valid role: user, model."))
    return made(content.role, calls, results, speaks=speaks, tokens=tokens, has_media=has_media, faults=tuple(faults))


def made(
    role: str | None,
    calls: list[Call],
    results: list[Result],
    *,
    speaks: bool,
    tokens: int,
    has_media: bool = False,
    faults: tuple[tuple[str, str], ...] = (),
) -> Turn:
    """A turn, with what follows from its parts."""
    forged, foreign = None, False
    for call in calls:
        forged, foreign = forged or call.verdict.forged, foreign or call.verdict.foreign
    is_model = role == "model"
    return Turn(
        "model" if is_model else "user",
        tuple(calls),
        tuple(results),
        speaks,
        tokens,
        has_media,
        len(calls) - len(results) if is_model else 0,
        forged,
        foreign,
        faults,
    )


def _faults_of(part: wire.Part) -> list[tuple[str, str]]:
    data = [name for name in _DATA if getattr(part, name) is not None]
    if len(data) > 1:
        return [("", f"oneof field 'data' is already set. Cannot set '{data[1]}'")]
    if not data:
        if part.video_metadata is not None or part.thought_signature is not None:
            return []
        return [(".data", "required oneof field 'data' must have one initialized field")]
    if part.function_call is not None and not part.function_call.name and not _is_partial(part.function_call):
        return [(".function_call.name", "Name cannot be empty.")]
    if part.function_response is not None and not part.function_response.name:
        return [(".function_response.name", "Name cannot be empty.")]
    file = part.inline_data or part.file_data
    if file is not None and (file.mime_type or "").startswith(_UNREADABLE_FILES):
        return [(".mime_type", f"Unsupported MIME type: {file.mime_type}")]
    return []


_DATA = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)


def _is_partial(call: wire.FunctionCall) -> bool:
    return call.partial_args is not None or call.will_continue is not None
