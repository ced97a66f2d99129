"""Convert an answer to the bytes of a response: apply the tool choice, add ids, signatures and token counts."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._schema.normalize import normalize_tree
from midspan._schema.sample import sample_object
from midspan._types.texts import estimate_tokens
from midspan.emulator.gemini.api import ApiRoute
from midspan.emulator.gemini.check import declarations_in, parameters_of
from midspan.emulator.gemini.contents import CALL_TOKENS, sign
from midspan.emulator.gemini.script import Answer, Conversation, call
from midspan.emulator.http import JSON, Reply, Step, Wait, chunk, head

Document = dict[str, Any]
_TOTAL = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")

encode = msgspec.json.Encoder().encode


def apply_tool_choice(answer: Answer, conversation: Conversation) -> Answer:
    """Return the answer that the function calling config of the request allows."""
    if answer.documents:
        return answer
    if not conversation.thinking_config.include_thoughts:
        answer = replace(answer, parts=tuple(part for part in answer.parts if not part.get("thought")))
    mode = conversation.calling_config.mode
    called = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
    allowed = {declaration.name or "": declaration for declaration in declarations_in(conversation.request.tools)}
    if names := conversation.calling_config.allowed_function_names:
        allowed = {name: allowed[name] for name in names if name in allowed}
    is_allowed = all(name in allowed for name in called)
    if mode == "NONE" or (mode == "VALIDATED" and allowed and not is_allowed):
        others = tuple(part for part in answer.parts if "functionCall" not in part)
        return replace(answer, parts=others or ({"text": "No function may be called here."},)) if called else answer
    if mode == "ANY" and allowed:
        if called and is_allowed:
            return answer
        name, declaration = next(iter(allowed.items()))
        arguments = sample_object(normalize_tree(parameters_of(declaration) or {}).root)
        return replace(answer, parts=(call(name, **arguments),), finish_reason="STOP")
    if called and not conversation.request.tools:
        return Answer(
            finish_reason="UNEXPECTED_TOOL_CALL", finish_message="Model tried to call an undeclared function."
        )
    return answer


def documents_of(
    answer: Answer, conversation: Conversation, route: ApiRoute, next_number: Callable[[], int]
) -> list[Document]:
    """Return the response as one document, or as one per chunk if it is streamed.

    The numbers make ids and signatures differ.
    """
    if answer.documents:
        return list(answer.documents)
    rest = {"modelVersion": conversation.model, "responseId": f"midspan{next_number():015d}"}
    fields = {"finishReason": answer.finish_reason, "finishMessage": answer.finish_message}
    last = {name: value for name, value in fields.items() if value} | answer.extra
    parts = _parts(answer, conversation, next_number)
    count = conversation.generation_config.candidate_count or 1
    documents: list[dict[str, Any]] = []
    tokens = 0
    for chunk_parts in _chunks(parts, answer.chunks) if route.is_streaming else [parts]:
        tokens += count * sum(estimate_tokens(part["text"]) if "text" in part else CALL_TOKENS for part in chunk_parts)
        content = {"parts": chunk_parts, "role": "model"} if chunk_parts else {"role": "model"}
        candidate = {"content": content, "index": 0}
        usage = _usage(answer, conversation, tokens)
        documents.append({"candidates": [candidate], "usageMetadata": usage, **rest})
    (candidate,) = documents[-1]["candidates"]
    documents[-1]["candidates"] = [{**candidate, **last, "index": index} for index in range(count)]
    return documents


def _parts(answer: Answer, conversation: Conversation, next_number: Callable[[], int]) -> list[Document]:
    """Return the parts with the ids and signatures that the model sends."""
    rules = conversation.rules
    thinks = bool(conversation.functions) and conversation.thinking_config.thinking_budget != 0
    signs = rules.sends_signatures and (rules.requires_signatures or thinks)
    parts: list[Document] = []
    for part in answer.parts:
        called = part.get("functionCall")
        sent = dict(part)
        if called is not None:
            if rules.sends_ids and not called.get("id"):
                sent["functionCall"] = {"id": f"{next_number() * 2_654_435_761 % 2**32:08x}", **called}
            if signs and "thoughtSignature" not in part:
                sent["thoughtSignature"] = sign(str(called.get("name", "")), next_number())
            signs = False  # only the first of parallel calls is signed
        parts.append(sent)
    if signs and rules.requires_signatures and parts and "text" in parts[-1] and not parts[-1].get("thought"):
        parts[-1] = {"thoughtSignature": sign("", next_number()), **parts[-1]}
    return parts


def _chunks(parts: list[Document], text_chunks: int) -> list[list[Document]]:
    """Split texts; adjacent calls come in one chunk, which is the last one if nothing follows."""
    chunks: list[list[Document]] = []
    for part in parts:
        if "text" in part:
            text, size = part["text"], max(1, -(-len(part["text"]) // text_chunks))
            rest = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
            chunks += [[{**rest, "text": text[at : at + size]}] for at in range(0, len(text) or 1, size)]
            if "thoughtSignature" in part:  # after all text, on a part with empty text
                chunks.append([{**rest, "text": "", "thoughtSignature": part["thoughtSignature"]}])
        elif chunks and "functionCall" in part and "functionCall" in chunks[-1][-1]:
            chunks[-1].append(part)
        else:
            chunks.append([part])
    return chunks or [[]]


def _usage(answer: Answer, conversation: Conversation, tokens: int) -> Document:
    usage: Document = {"promptTokenCount": conversation.prompt_tokens, "candidatesTokenCount": tokens}
    if conversation.cached_tokens:
        usage["cachedContentTokenCount"] = conversation.cached_tokens
    usage |= answer.usage
    usage.setdefault("totalTokenCount", sum(usage.get(name, 0) for name in _TOTAL))
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": usage["promptTokenCount"]}]
    return usage


def frames_of(documents: list[Document], route: ApiRoute) -> list[bytes]:
    """Encode documents as the route requires: a single one, server-sent events, or pieces of one JSON array."""
    encoded = [encode(document) for document in documents]
    if not route.is_streaming:
        return [encoded[-1] + b"\n"]
    if route.is_sse:
        return [b"data: %b\r\n\r\n" % document for document in encoded]
    *others, last = [b"%b%b" % (b"," if at else b"[", document) for at, document in enumerate(encoded)]
    return [*(other + b"\r\n" for other in others), last + b"]"]


def reply_of(steps: list[Step], size: int, answer: Answer, route: ApiRoute) -> Reply:
    """Return the reply that sends the frames, with the waits of the answer; `size` is that of an unstreamed body."""
    delay: Reply = [Wait(answer.delay_seconds)] if answer.delay_seconds else []
    if not route.is_streaming:
        return [*delay, head(200, JSON, f"Content-Length: {size}"), *steps]
    if answer.gap_seconds:
        steps = [item for step in steps for item in (step, Wait(answer.gap_seconds))][:-1]
    chunks: list[Step] = [chunk(step) if isinstance(step, bytes) else step for step in steps]
    content_type = "text/event-stream" if route.is_sse else JSON
    return [*delay, head(200, content_type, "Transfer-Encoding: chunked"), *chunks, chunk(b"")]
