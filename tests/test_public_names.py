"""The public modules: every name that they list can be loaded, and nothing else."""

from importlib import import_module

import pytest

MODULES = ["midspan", "midspan.events", "midspan.messages", "midspan.providers", "midspan.testing", "midspan.tools"]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_can_be_loaded(module: str) -> None:
    public = import_module(module)
    assert public.__all__
    assert all(getattr(public, name) is not None for name in public.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_unknown_public_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'unknown_name'"):
        _ = import_module(module).unknown_name
