from typing import Any

import pytest

from midspan.errors import ConfigError
from midspan.providers.gemini.api import endpoint
from midspan.providers.gemini.capabilities import Api


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        ({}, {}, "https://generativelanguage.googleapis.com/v1beta/models/m"),
        ({"version": "v1"}, {}, "https://generativelanguage.googleapis.com/v1/models/m"),
        ({}, {"GOOGLE_GENAI_API_VERSION": "v1alpha"}, "https://generativelanguage.googleapis.com/v1alpha/models/m"),
        ({}, {"GOOGLE_GENAI_API_VERSION": "beta"}, "https://generativelanguage.googleapis.com/v1beta/models/m"),
        ({}, {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1/"}, "http://127.0.0.1:1/v1beta/models/m"),
        ({"base_url": "http://a/x"}, {"GOOGLE_GEMINI_BASE_URL": "http://b"}, "http://a/x/v1beta/models/m"),
        ({}, {"GOOGLE_GEMINI_BASE_URL": ""}, "https://generativelanguage.googleapis.com/v1beta/models/m"),
        ({"vertex": True, "project": "p"}, {}, "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google/models/m"),
        ({"vertex": True, "project": "p", "location": "us-central1"}, {}, "https://us-central1-aiplatform.googleapis.com/v1beta1/projects/p/locations/us-central1/publishers/google/models/m"),
        ({"vertex": True, "project": "p", "location": "eu"}, {}, "https://aiplatform.eu.rep.googleapis.com/v1beta1/projects/p/locations/eu/publishers/google/models/m"),
        ({}, {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us"}, "https://aiplatform.us.rep.googleapis.com/v1beta1/projects/p/locations/us/publishers/google/models/m"),
        ({}, {"GOOGLE_GENAI_USE_ENTERPRISE": "1"}, "https://aiplatform.googleapis.com/v1beta1/publishers/google/models/m"),
        ({"vertex": False}, {"GOOGLE_GENAI_USE_VERTEXAI": "1"}, "https://generativelanguage.googleapis.com/v1beta/models/m"),
    ],
)  # fmt: skip
def test_the_url_comes_from_arguments_or_the_environment(given: Any, environment: Any, address: str) -> None:
    where = endpoint(**given, environment=environment)
    assert f"{where.base_url}/{where.version}/{where.model('m')}" == address


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gemini-3.8-flash", "models/gemini-3.8-flash"),
        ("models/gemini-3.8-flash", "models/gemini-3.8-flash"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("a b?key=1#x", "models/a%20b%3Fkey%3D1%23x"),
    ],
)
def test_a_model_has_a_path(name: str, path: str) -> None:
    assert endpoint(environment={}).model(name) == path


@pytest.mark.parametrize("name", ["../../secrets", "models/../x", "", " ", "\ud800", "a\n", "a\0b"])
def test_a_resource_name_outside_its_collection_is_an_error(name: str) -> None:
    for where in (endpoint(environment={}), endpoint(vertex=True, project="p", environment={})):
        with pytest.raises(ConfigError, match="is not a valid model name"):
            where.model(name)


def test_on_vertex_a_model_may_be_named_in_full() -> None:
    where = endpoint(vertex=True, project="p", environment={})
    full = "projects/q/locations/l/endpoints/7"
    assert where.model(full) == full
    assert where.model("publishers/meta/models/x") == "projects/p/locations/global/publishers/meta/models/x"
    assert where.resource("cachedContents/1") == "projects/p/locations/global/cachedContents/1"
    assert where.api is Api.VERTEX


@pytest.mark.parametrize("address", ["", "localhost:80", "ftp://x", "http://"])
def test_an_invalid_url_is_an_error(address: str) -> None:
    for vertex in (False, True):
        with pytest.raises(ConfigError, match="not a valid base URL"):
            endpoint(base_url=address, vertex=vertex, environment={"GOOGLE_GEMINI_BASE_URL": "http://a"})


@pytest.mark.parametrize("name", ["1", "cachedContents/1", "projects/q/locations/l/cachedContents/1"])
def test_item_of_a_collection_is_named_with_or_without_its_path(name: str) -> None:
    assert endpoint(environment={}).resource("cachedContents", name) == "cachedContents/1"
    where = endpoint(vertex=True, project="p", environment={})
    assert where.resource("cachedContents", name) == "projects/p/locations/global/cachedContents/1"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "cachedContents/", "a?b", "cachedContents/../x"])
def test_name_outside_of_its_collection_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name in cachedContents"):
        endpoint(environment={}).resource("cachedContents", name)


def test_caches_on_vertex_need_a_project() -> None:
    with pytest.raises(ConfigError, match="cachedContents belong to a project"):
        endpoint(vertex=True, environment={}).resource("cachedContents")
