"""Rules for contents: their parts, the order of calls and results, thought signatures, and files in results."""

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby

import msgspec

from midspan._types.texts import estimate_tokens
from midspan.emulator.gemini.api import invalid, invalid_fields
from midspan.emulator.gemini.models import MAX_TOKENS, ModelRules
from midspan.emulator.gemini.reading import standard_base64
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.encode import SKIP_SIGNATURE
from midspan.providers.gemini.wire import Content, FunctionCall, FunctionResponse, Part

CALL_TOKENS = 8
_FILE_TOKENS = 258
_ROLES = ("user", "model", "function", "tool")
_DATA_FIELDS = (
    *("text", "inline_data", "file_data", "function_call", "function_response", "executable_code"),
    *("code_execution_result", "tool_call", "tool_response"),
)
_NO_DATA = "required oneof field 'data' must have one initialized field"
_ENSURE = "Please ensure that"
_CALL_ORDER = "function call turn comes immediately after a user turn or after a function response turn."
_WRONG_COUNT = (
    f"{_ENSURE} the number of function response parts is equal to the number of function call parts of the function "
    "call turn."
)

_PREFIX = b"\x12midspan:"
_PREFIX_BASE64 = b64encode(_PREFIX).decode()
_SIGNATURE_SIZE = 36
"""A multiple of 3, so that the base64 has no padding that a client could drop."""

_INVALID = "Invalid thought signature."
_DUMMIES = (SKIP_SIGNATURE, "context_engineering_is_the_way_to_go")
_DUMMIES_BASE64 = tuple(b64encode(dummy.encode()).decode().rstrip("=") for dummy in _DUMMIES)
"""The API accepts these words in place of a signature; some clients encode them."""


def check_each(contents: Sequence[Content], api: Api) -> None:
    """Check each content on its own, and that each result of a server-side call has its call."""
    called = set()
    for index, content in enumerate(contents):
        path = f"contents[{index}].parts"
        if not content.parts and (content.parts is not None or content.role != "model"):
            # A model turn without parts is accepted, because empty answers come without parts.
            raise invalid_fields([(path, "contents.parts must not be empty.")], api)
        if content.role and content.role not in _ROLES:
            raise invalid("Please use a valid role: user, model.")
        parts = [(f"{path}[{at}]", part) for at, part in enumerate(content.parts or ())]
        errors = [error for place, part in parts for error in _part_errors(part, place)]
        if errors:
            raise invalid_fields(errors, api)
        called |= {part.tool_call.id for _, part in parts if part.tool_call is not None}
        for place, part in parts:
            if part.tool_response is not None and part.tool_response.id not in called:
                raise invalid(
                    f"Invalid value at '{place}.tool_response.id': it does not match the id of any tool_call."
                )


def _part_errors(part: Part, path: str) -> Iterator[tuple[str, str]]:
    data = [name for name in _DATA_FIELDS if getattr(part, name) is not None]
    if len(data) > 1:
        reason = f"oneof field 'data' is already set. Cannot set '{data[1]}'"
        raise invalid(f"Invalid value at '{path}' (oneof), {reason}")
    if not data and part.video_metadata is None and part.thought_signature is None:
        yield f"{path}.data", _NO_DATA
    call, result = part.function_call, part.function_response
    if call is not None and not call.name and call.partial_args is None and call.will_continue is None:
        yield f"{path}.function_call.name", "Name cannot be empty."
    if result is not None and not result.name:
        yield f"{path}.function_response.name", "Name cannot be empty."


def check_together(contents: Sequence[Content], rules: ModelRules, *, strict_signatures: bool = False) -> None:
    """Check the rules about several contents, each of which is valid."""
    check_contents_size(contents, rules.api)
    _check_order(contents, rules)
    _check_signatures(contents, rules, strict=strict_signatures)
    for index, content in enumerate(contents):
        for at, part in enumerate(content.parts or ()):
            if part.function_response is not None and part.function_response.parts:
                _check_files(part.function_response, f"contents[{index}].parts[{at}].function_response", rules)


def check_contents_size(contents: Sequence[Content], api: Api) -> None:
    if not contents:
        raise invalid_fields([("contents", "contents is not specified")], api)
    tokens = count_tokens(contents)
    if tokens > MAX_TOKENS:
        raise invalid(f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({MAX_TOKENS}).")


def count_tokens(contents: Sequence[Content] | None, system: Content | None = None) -> int:
    """Estimate the tokens of contents and a system instruction."""
    counted = [*(contents or ()), *([system] if system else ())]
    return sum(_part_tokens(part) for content in counted for part in content.parts or ())


def _part_tokens(part: Part) -> int:
    if part.text is not None:
        return estimate_tokens(part.text)
    return CALL_TOKENS if part.function_call or part.function_response else _FILE_TOKENS


class _Turn:
    """One content, or adjacent contents that count as one turn."""

    def __init__(self, *contents: Content) -> None:
        parts = [part for content in contents for part in content.parts or ()]
        self.is_model = contents[0].role == "model"
        self.calls = [part.function_call for part in parts if part.function_call is not None]
        self.results = [part.function_response for part in parts if part.function_response is not None]
        self.open_calls = len(self.calls) - len(self.results) if self.is_model else 0
        """Calls without a result in the same turn; the server puts the results of tools that it runs there."""


def _turns(contents: Sequence[Content], rules: ModelRules) -> Iterator[_Turn]:
    for is_model, adjacent in groupby(contents, key=lambda content: content.role == "model"):
        # Every model accepts a turn of the model in several contents: clients send each chunk of a stream back as one.
        if is_model or rules.joins_user_contents:
            yield _Turn(*adjacent)
        else:
            yield from map(_Turn, adjacent)


def _check_order(contents: Sequence[Content], rules: ModelRules) -> None:
    """Check that calls follow the user, that the next turn has one result for each, and that the user is last."""
    unanswered: _Turn | None = None
    is_after_model = True
    for turn in _turns(contents, rules):
        if unanswered is not None and (turn.results or not rules.accepts_unanswered_calls):
            if len(turn.results) != unanswered.open_calls:
                raise invalid(_WRONG_COUNT)
            if rules.checks_ids:
                _check_ids(unanswered, turn.results)
        elif unanswered is None and turn.results and not turn.is_model:
            raise invalid(f"{_ENSURE} function response turn comes immediately after a function call turn.")
        if turn.calls and is_after_model:
            raise invalid(f"{_ENSURE} {_CALL_ORDER}")
        unanswered = turn if turn.open_calls > 0 else None
        is_after_model = turn.is_model
    if unanswered is not None:
        raise invalid(_WRONG_COUNT)
    if is_after_model and not rules.accepts_prefill:
        raise invalid("Requests ending with a model turn are not supported.")


def _check_ids(called: _Turn, results: Sequence[FunctionResponse]) -> None:
    """Check that each result, including those of tools that the server runs, belongs to a different call."""
    answers = (*called.results, *results)
    call_ids, result_ids = [[item.id for item in items if item.id] for items in (called.calls, answers)]
    has_repeated = len(set(call_ids)) < len(call_ids) or len(set(result_ids)) < len(result_ids)
    if has_repeated or not set(result_ids) <= set(call_ids):
        raise invalid("functionResponse.id does not match functionCall.id")
    names = {call.id: call.name for call in called.calls}
    has_wrong_name = any(result.id and result.name != names[result.id] for result in answers)
    if has_wrong_name or Counter(call.name for call in called.calls) != Counter(result.name for result in answers):
        raise invalid("functionResponse.name does not match functionCall.name")


def _check_signatures(contents: Sequence[Content], rules: ModelRules, *, strict: bool) -> None:
    """Check the signatures on calls, and that each step of the current turn has one on its first call."""
    questions = [index for index, content in enumerate(contents) if _is_question(content)]
    for index, content in enumerate(contents):
        signed = [(part.function_call, part.thought_signature) for part in content.parts or () if part.function_call]
        for at, (call, signature) in enumerate(signed):
            if signature:
                _check_signature(signature, call, is_first=at == 0, strict=strict)
        is_current = rules.requires_signatures and (not questions or index > questions[-1])
        if is_current and _Turn(content).open_calls > 0 and not signed[0][1]:
            raise invalid(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{signed[0][0].name}` , position {index + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


def _is_question(content: Content) -> bool:
    """Whether the user wrote something that is not a result."""
    turn = _Turn(content)
    return not turn.is_model and not turn.results and len(turn.calls) < len(content.parts or ())


def sign(name: str, nonce: int) -> str:
    """Create the signature of a call, or of text if the name is empty."""
    data = _PREFIX + nonce.to_bytes(8, "big")
    tag = blake2b(data + name.encode(), digest_size=_SIGNATURE_SIZE - len(data)).digest()
    return b64encode(data + tag).decode()


def _check_signature(signature: str, call: FunctionCall, *, is_first: bool, strict: bool) -> None:
    """Check the signature of a call. Those of other servers cannot be verified; `strict` rejects them."""
    if not signature.startswith(_PREFIX_BASE64):
        if strict and signature.rstrip("=") not in (*_DUMMIES, *_DUMMIES_BASE64):
            raise invalid(_INVALID)
        return
    data = b64decode(standard_base64(signature))
    if len(data) != _SIGNATURE_SIZE:
        raise invalid("Corrupted thought signature.")
    nonce = int.from_bytes(data[len(_PREFIX) :][:8], "big")
    if not is_first or data != b64decode(sign(call.name or "", nonce)):  # only the first of parallel calls is signed
        raise invalid(_INVALID)


def _check_files(result: FunctionResponse, path: str, rules: ModelRules) -> None:
    if not rules.capabilities.media_in_results:
        raise invalid(
            "Unable to submit request because `function_response.parts` is not supported for this model. Learn more: "
            "https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling"
        )
    for at, part in enumerate(result.parts or ()):
        if part.inline_data is None and part.file_data is None:
            raise invalid_fields([(f"{path}.parts[{at}].data", _NO_DATA)], rules.api)
    # The Developer API does not find a display name even if there is one.
    if rules.api is Api.DEVELOPER and b'"$ref":' in msgspec.json.encode(result.response):
        raise invalid(f"The $ref in {path}.response does not match to a display_name of its parts.")
