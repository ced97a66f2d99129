"""The public modules: every name that they list can be loaded, and nothing else."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

MODULES = [
    "midspan",
    "midspan.events",
    "midspan.messages",
    "midspan.providers",
    "midspan.testing",
    "midspan.tools",
    "midspan.compat",
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_can_be_loaded(module: str) -> None:
    public = import_module(module)
    assert public.__all__
    assert all(getattr(public, name) is not None for name in public.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_unknown_public_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'unknown_name'"):
        _ = import_module(module).unknown_name


@pytest.mark.parametrize("module", MODULES)
def test_no_public_name_is_hidden_by_a_submodule(module: str) -> None:
    package = import_module(module)
    submodules = {info.name for info in iter_modules(getattr(package, "__path__", ()))}
    assert not submodules & set(package.__all__)
