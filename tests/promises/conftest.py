"""A server that records the requests of the Gemini API, and a client of it."""

from collections.abc import Iterator

import pytest

from midspan.gemini import Client
from tests.gemini.recorder import Recorder, recorder


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as record:
        yield record


@pytest.fixture
def client(server: Recorder) -> Iterator[Client]:
    with Client(api_key="k", base_url=server.url) as client:
        yield client
