"""Names and shapes of other designs, for programs that were written against them. New programs use `midspan.Agent`."""

from midspan.compat.auto_tools import extract_text as extract_text
from midspan.compat.auto_tools import from_tool_results as from_tool_results
from midspan.compat.auto_tools import generate_content_with_auto_tools as generate_content_with_auto_tools
from midspan.compat.auto_tools import get_stream_status as get_stream_status
from midspan.compat.auto_tools import new_function_declaration as new_function_declaration
from midspan.compat.auto_tools import stop_stream as stop_stream
from midspan.compat.auto_tools import stream_generate_with_auto_tools as stream_generate_with_auto_tools
from midspan.compat.auto_tools import subscribe_stream as subscribe_stream
from midspan.compat.auto_tools import use as use
from midspan.compat.bridge import InternalToolSpec as InternalToolSpec
from midspan.compat.bridge import ToolBridge as ToolBridge
from midspan.compat.clients import AnthropicClient as AnthropicClient
from midspan.compat.clients import Client as Client
from midspan.compat.clients import GeminiClient as GeminiClient
from midspan.compat.clients import OpenAIClient as OpenAIClient
from midspan.compat.prompting import build_system_prompt_with_tools as build_system_prompt_with_tools
from midspan.compat.prompting import extract_tool_calls as extract_tool_calls
from midspan.gemini.auto import ToolRegistry as ToolRegistry
from midspan.gemini.auto import Tools as Tools
