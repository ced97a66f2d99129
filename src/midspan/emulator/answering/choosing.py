"""What a model may answer here: forced calls are made, forbidden ones are not, thoughts are shown only if asked for."""

from typing import Any

from msgspec.structs import replace

from midspan.emulator.answering.answer import Answer
from midspan.emulator.answering.sampling import sample
from midspan.emulator.checking import Question
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import FunctionCallingConfig, FunctionDeclaration, GenerateContentRequest


def obeying(answer: Answer, question: Question, setup: GenerateContentRequest) -> Answer:
    """The answer as far as the caller's choice lets the model give it; `setup` is the cache's, where there is one."""
    if answer.documents or answer.blocked:
        return answer
    answer = _without_hidden_thoughts(answer, question)
    if setup.tool_config is None and setup.tools:
        return answer
    calls = [part["functionCall"] for part in answer.parts if "functionCall" in part]
    config = setup.tool_config.function_calling_config if setup.tool_config is not None else None
    mode = config.mode if config is not None else None
    declared = _declared(setup)
    if mode == "NONE":
        return _without_calls(answer) if calls else answer
    if mode == "ANY" and declared:
        allowed = _allowed(config, declared)
        if not calls or any(call.get("name") not in allowed for call in calls):
            return replace(answer, parts=(_forced_call(allowed),), finish="STOP")
    elif mode == "VALIDATED" and declared and any(one.get("name") not in _allowed(config, declared) for one in calls):
        return _without_calls(answer)
    elif calls and not declared and not setup.tools:
        return Answer(finish="UNEXPECTED_TOOL_CALL", finish_message="Model tried to call an undeclared function.")
    return answer


def _without_hidden_thoughts(answer: Answer, question: Question) -> Answer:
    for part in answer.parts:
        if "thought" in part:
            break
    else:
        return answer
    config = question.setup.generation_config
    thinking = config.thinking_config if config is not None else None
    if thinking is not None and thinking.include_thoughts:
        return answer
    return replace(answer, parts=tuple(part for part in answer.parts if not part.get("thought")))


def _without_calls(answer: Answer) -> Answer:
    rest = tuple(part for part in answer.parts if "functionCall" not in part)
    return replace(answer, parts=rest or ({"text": "No function may be called here."},))


def _declared(setup: GenerateContentRequest) -> dict[str, FunctionDeclaration]:
    return {one.name or "": one for tool in setup.tools or () for one in tool.function_declarations or ()}


def _allowed(
    config: FunctionCallingConfig | None, declared: dict[str, FunctionDeclaration]
) -> dict[str, FunctionDeclaration]:
    names = config.allowed_function_names if config is not None else None
    return {name: declared[name] for name in names if name in declared} if names else declared


def _forced_call(allowed: dict[str, FunctionDeclaration]) -> dict[str, Any]:
    name, declaration = next(iter(allowed.items()))
    plain = to_plain(declaration)
    schema = plain.get("parametersJsonSchema", plain.get("parameters"))
    arguments = sample(schema) if schema else {}
    return {"functionCall": {"name": name, "args": arguments if isinstance(arguments, dict) else {}}}
