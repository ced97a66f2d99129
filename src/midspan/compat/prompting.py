"""Prompt mode in two functions, for programs that send prompts and read calls themselves."""

from collections.abc import Iterable, Mapping
from typing import Any

from midspan._loop.blocking import run_blocking
from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.specs import ToolSpec
from midspan.providers.prompted.client import PromptedTools, calls_as_dicts
from midspan.providers.prompted.forms import PROMPT_MARKER
from midspan.providers.prompted.prompt import system_prompt
from midspan.providers.provider import ModelProfile
from midspan.providers.scripted import ScriptedProvider

Declaration = ToolSpec | Mapping[str, Any]


def build_system_prompt_with_tools(tools: Iterable[Declaration]) -> str:
    """Return the text that describes the tools to a model, and how it calls them.

    A tool is a ToolSpec, or a dict as OpenAI, Anthropic or MCP write it.
    """
    return system_prompt([ToolSpec.of(tool) for tool in tools], PROMPT_MARKER)


def extract_tool_calls(text: str, tools: Iterable[Declaration]) -> list[dict[str, Any]]:
    """Return the calls in the text of a model, each with `id`, `name` and `arguments`.

    Calls that cannot be read and calls of unknown tools are logged and left out.
    """
    specs = [ToolSpec.of(tool) for tool in tools]
    model = PromptedTools(ScriptedProvider([text], profile=ModelProfile("Gemini")))
    request = ModelRequest(RequestConfig(model.model, tools=tuple(specs)), History([Message.user("")]))
    return calls_as_dicts(run_blocking(model.generate(request)).message.calls)
