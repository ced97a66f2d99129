"""Tools from files and modules that a user names."""

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from midspan.errors import ConfigError, SchemaError

READY = "ready"


def tools_of(names: Iterable[str] | None) -> list[Any]:
    """All tools of the files and modules named; the ready ones where nothing is named."""
    if names is None:
        names = (READY,)
    tools: list[Any] = []
    for name in dict.fromkeys(names):
        tools += _ready() if name == READY else _from(_loaded(name), name)
    return tools


def _ready() -> list[Any]:
    from midspan.toolsets import ready_tools

    return list(ready_tools())


def _loaded(name: str) -> ModuleType:
    is_file = name.endswith(".py") or "/" in name or Path(name).is_file()
    try:
        # What a file prints while it is loaded is no part of an answer.
        with contextlib.redirect_stdout(sys.stderr):
            return _load_file(Path(name).expanduser()) if is_file else _load_module(name)
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"the tools in {name!r} cannot be read: {error.msg}, line {error.lineno}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's file is foreign code, which may even call sys.exit
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ConfigError(f"the tools in {name!r} cannot be loaded: {what}{_line(error)}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise ConfigError(f"the tools in {str(path)!r} cannot be loaded: the file {what}")
    name = f"midspan_tools_in_{path.stem}"  # a name that is nobody else's: a file may be called json.py
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the tools in {str(path)!r} cannot be loaded: a file of tools is called NAME.py")
    module = importlib.util.module_from_spec(spec)
    _also_search(path.parent)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    _also_search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # it is there, and something that it needs is not
        raise ConfigError(
            f"there is no module {name!r} here; give a module of this Python, or a file as ./NAME.py"
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name!r} is neither a file NAME.py nor a module") from error


def _also_search(folder: Path) -> None:
    """Last, so that a file there never takes the place of a module of Python."""
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.append(place)


def _from(module: ModuleType, name: str) -> list[Any]:
    """What a module says are its tools, or all that are tools, or all its functions."""
    from midspan.tools.function import Tool, tool_of
    from midspan.tools.source import ToolSource

    said = getattr(module, "tools", None)
    if isinstance(said, ToolSource) and not isinstance(said, type):
        return [said]
    # A module or a function may be called so too, and says nothing about what the tools are.
    if not (said is None or isinstance(said, list | tuple | ModuleType) or callable(said)):
        hint = "give its source()" if hasattr(said, "source") else "write a list of functions, or leave it out"
        raise ConfigError(f"what {name!r} calls tools is {said!r}, which is no list or source of tools; {hint}")
    try:
        if isinstance(said, list | tuple):
            return [one if isinstance(one, ToolSource) else tool_of(one) for one in said]
        public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        tools = [value for value in public.values() if isinstance(value, Tool)]
        own = [one for one in public.values() if inspect.isfunction(one) and one.__module__ == module.__name__]
        found = list(dict.fromkeys(tools)) or [tool_of(function) for function in own]
    except (SchemaError, TypeError) as error:
        raise ConfigError(f"the tools in {name!r} cannot be used: {error}") from error
    if not found:
        raise ConfigError(f"there are no tools in {name!r}; write a function there, best with @tool above it")
    return found


def _line(error: BaseException) -> str:
    """Where in the file it happened, in the outermost place that is not the machinery of imports."""
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            return f" ({Path(file).name}, line {step.tb_lineno})"
        step = step.tb_next
    return ""
