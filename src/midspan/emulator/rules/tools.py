"""Tools together: built-in ones beside functions, and what the caller lets the model choose."""

from collections.abc import Sequence

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.emulator.rules.declarations import names_of
from midspan.emulator.rules.states import check_states
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import FunctionCallingConfig, Tool, ToolConfig

_FUNCTIONS = "function_declarations"
_BUILTIN = tuple(name for name in Tool.__struct_fields__ if name not in (_FUNCTIONS, "extra", "mcp_servers"))


def check_tools(tools: Sequence[Tool], config: ToolConfig | None, family: Family, *, streaming: bool) -> None:
    names = names_of(tools)
    builtin = any(getattr(tool, name) is not None for tool in tools for name in _BUILTIN)
    calling = config.function_calling_config if config is not None else None
    shown = config is not None and config.include_server_side_tool_invocations is True
    if shown and not family.capabilities.server_side_calls:
        raise invalid(f"Tool call context circulation is not enabled for models/{family.name}")
    if names and builtin:
        _check_combined(calling, family, shown=shown)
    if calling is not None:
        _check_choice(calling, names, family, has_tools=bool(tools))
        check_states(tools, calling)
        if calling.stream_function_call_arguments and not (streaming and family.capabilities.streamed_arguments):
            raise invalid("stream_function_call_arguments is only supported in streaming requests of Gemini 3 models.")


def _check_combined(calling: FunctionCallingConfig | None, family: Family, *, shown: bool) -> None:
    if not family.capabilities.builtin_with_functions:
        raise invalid("Tool use with function calling is unsupported")
    if family.capabilities.server_side_calls and not shown:
        raise invalid(
            "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function "
            "calling."
        )
    if shown and calling is not None and calling.mode == "AUTO":
        raise invalid("Function calling mode AUTO is not supported together with built-in tools; use VALIDATED.")


def _check_choice(calling: FunctionCallingConfig, names: Sequence[str], family: Family, *, has_tools: bool) -> None:
    forced = calling.mode in ("ANY", "VALIDATED")
    allowed = calling.allowed_function_names or ()
    if not family.capabilities.functions:
        return  # a model that calls nothing does not look at it
    if not names and (forced or (has_tools and calling.mode == "AUTO")):
        raise invalid("Function calling config is set without function_declarations.")
    if allowed and not forced:
        raise invalid("allowed_function_names should be set only when function calling mode is ANY or VALIDATED.")
    for name in allowed:
        if name not in names:
            where = "tool_config.function_calling_config.allowed_function_names"
            prefix = "" if family.capabilities.api is Api.VERTEX else "* GenerateContentRequest."
            raise invalid(f"{prefix}{where}: function `{name}` is not declared in tools.")
