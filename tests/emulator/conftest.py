from collections.abc import Iterator

import pytest

from midspan.emulator import LocalGemini


@pytest.fixture(scope="session")
def echo() -> Iterator[LocalGemini]:
    """A server that says again what it hears; nothing about it is changed by a test."""
    with LocalGemini() as server:
        yield server
