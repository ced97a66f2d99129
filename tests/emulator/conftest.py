from collections.abc import Iterator

import pytest

from midspan.emulator import LocalGemini


@pytest.fixture(scope="session")
def echo() -> Iterator[LocalGemini]:
    """A server that repeats the user's text and knows old models too; no test changes it."""
    with LocalGemini(retired_models=True) as server:
        yield server
