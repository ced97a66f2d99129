"""Module attributes that are imported when they are first used.

The public modules list the names that other modules define. Importing a public module costs almost nothing until one of
its names is needed.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_attributes(
    module: str, names: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a module, given which names each other module defines."""
    homes = {name: home for home, defined in names.items() for name in defined.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return list(homes), load, lambda: sorted(homes)
