"""Tools from the files and modules that a user names."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from midspan.errors import ConfigError, SchemaError

FILE_MODULE_PREFIX = "midspan_tools_in_"


def tools_in(name: str) -> list[Any]:
    """Load the tools of a file or module: its `tools`, else those made with @tool, else its public functions."""
    from midspan.tools.function import Tool, tool_of  # both are loaded with the first file
    from midspan.tools.source import ToolSource

    with user_code(f"cannot load the tools in {name!r}"):
        module = load_module(name)
    listed = getattr(module, "tools", None)
    if isinstance(listed, ToolSource):
        return [listed]
    if not (listed is None or isinstance(listed, list | tuple | ModuleType) or callable(listed)):
        raise ConfigError(f"`tools` in {name!r} is {listed!r}; make it a list of functions or a source of tools")
    public = [value for key, value in vars(module).items() if not key.startswith("_")]
    decorated = [value for value in public if isinstance(value, Tool)]
    functions = [value for value in public if inspect.isfunction(value) and value.__module__ == module.__name__]
    tools: list[Any] = list(listed if isinstance(listed, list | tuple) else dict.fromkeys(decorated or functions))
    try:
        tools = [tool if isinstance(tool, ToolSource) else tool_of(tool) for tool in tools]
    except (SchemaError, TypeError) as error:
        raise ConfigError(f"cannot use the tools in {name!r}: {error}") from error
    if not tools:
        raise ConfigError(f"there are no tools in {name!r}; define a function there, preferably with @tool")
    return tools


@contextmanager
def user_code(problem: str) -> Iterator[None]:
    """Turn errors of a module of the user into a ConfigError. What the module prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a script may call sys.exit when it is imported
        description = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ConfigError(f"{problem}: {description}{_location(error)}") from error


def _location(error: BaseException) -> str:
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__ and "importlib" not in frame.filename:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def load_module(name: str) -> ModuleType:
    """Import a file or a module."""
    if not (name.endswith(".py") or "/" in name or Path(name).is_file()):
        _add_to_path(Path.cwd())
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists, and a module that it imports does not
            hint = "name a file as ./NAME.py"
            raise ConfigError(f"no module {name!r} is installed or in this directory; {hint}") from error
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"cannot load the tools in {str(path)!r}: no such file")
    module_name = FILE_MODULE_PREFIX + path.stem  # the file may have the name of a standard module, such as json.py
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot load the tools in {str(path)!r}: the name of the file does not end with .py")
    module = importlib.util.module_from_spec(spec)
    _add_to_path(path.parent)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def _add_to_path(folder: Path) -> None:
    """Add a folder at the end of sys.path, so that its files do not hide standard modules."""
    if (entry := str(folder.resolve())) not in sys.path:
        sys.path.append(entry)
