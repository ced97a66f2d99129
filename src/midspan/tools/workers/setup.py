"""What pools and worker processes are started with: options, limits, and the tools that a worker loads."""

from copy import copy
from types import NoneType
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Struct

from midspan.errors import ConfigError
from midspan.tools.files import load_module, tools_in, user_code
from midspan.tools.function import Tool
from midspan.tools.source import ToolSource
from midspan.tools.workers.address import HostAddress

_Count = Annotated[int, msgspec.Meta(gt=0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class WorkerLimits(Struct, frozen=True, kw_only=True):
    """How much workers may use, and how long they may take. None means no limit."""

    max_memory_bytes: _Count | None = None
    """The address space of each process."""
    max_cpu_seconds: _Seconds | None = None
    """CPU time of each call, rounded up to whole seconds. Processes that a call starts have the same limit each."""
    max_sessions: _Count = 16
    """Sessions with a process. If another one needs a process, the session that was idle longest loses its own."""
    idle_seconds: _Seconds | None = 900.0
    """A session without a call for so long loses its process."""
    start_seconds: _Seconds = 60.0
    """How long a worker may take to import its file, or a call may wait until a worker connects."""
    stuck_seconds: _Seconds = 30.0
    """A worker that does not react for so long is killed, unless it runs a call with a deadline."""
    ping_seconds: _Seconds = 5.0
    """How often workers are asked whether they react, and idle sessions are looked for."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                number = "number of seconds" if field.name.endswith("_seconds") else "int"
                optional = " or None" if NoneType in get_args(field.type) else ""
                raise ConfigError(f"{field.name} must be a positive {number}{optional}, got {value!r:.80}") from error


class WorkerSetup(Struct, frozen=True, omit_defaults=True):
    """The arguments of a worker process."""

    tools: str
    """A file or a module."""
    path: tuple[str, ...] = ()
    """The host's sys.path."""
    token: str = ""
    is_isolated: bool = False
    """Whether it runs the tools of a module that have `isolate=True`, and no others."""


class PoolOptions(Struct, frozen=True):
    """How a pool gets its workers."""

    setup: WorkerSetup | None
    """How to start a process; None if the workers are remote."""
    limits: WorkerLimits
    processes: int
    """The maximum; calls that tools make may need more for a while."""
    warm: int
    """How many are started without being needed yet."""
    sandbox: bool = False
    address: HostAddress | None = None
    token: str = ""


def load_tools(setup: WorkerSetup) -> dict[str, Tool[..., Any]]:
    """Load the tools of a worker, by name."""
    tools: dict[str, Tool[..., Any]] = {}
    for tool in _isolated_tools(setup.tools) if setup.is_isolated else tools_in(setup.tools):
        if isinstance(tool, ToolSource):
            raise ConfigError(f"{setup.tools!r} has the tool source {tool!r}; a worker runs functions and tools only")
        if tools.setdefault(tool.name, tool) is not tool:
            raise ConfigError(f"two tools in {setup.tools!r} are named {tool.name!r}; rename one of them")
    return tools


def _isolated_tools(name: str) -> list[Tool[..., Any]]:
    with user_code(f"cannot import {name!r}"):
        module = load_module(name)
    return [value for value in vars(module).values() if isinstance(value, Tool) and value.isolate]


def without_timeout(tool: Tool[..., Any]) -> Tool[..., Any]:
    """Return the tool as a worker runs it: the host keeps the time, and the process is isolated already."""
    tool = copy(tool)
    tool.timeout, tool.isolate = None, False
    return tool
