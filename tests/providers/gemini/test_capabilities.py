import pytest
from msgspec.structs import replace

from midspan._types.exchange import RequestConfig
from midspan._types.specs import ModelSettings
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, capabilities_of, successor_of
from midspan.providers.gemini.encode import config_fields


@pytest.mark.parametrize("model", ["gemini-9-xenon", "something-else", "UNKNOWN", "", "gemini-nova"])
def test_an_unknown_model_behaves_like_the_newest(model: str) -> None:
    newest = capabilities_of("gemini-4-carbon")
    assert capabilities_of(model) == replace(newest, sampling=model != "gemini-9-xenon")


@pytest.mark.parametrize(
    "model", ["tunedModels/my-model-1", "projects/p/locations/l/endpoints/123", "gemini-nova", "gemini-3.8-flash"]
)
def test_temperature_is_sent_unless_the_model_is_known_to_ignore_it(
    model: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ModelSettings(temperature=0.5, top_p=0.5, top_k=5)
    config = RequestConfig(model, settings=settings)
    expected = {"temperature": 0.5, "topP": 0.5, "topK": 5}
    assert config_fields(config, capabilities_of(model)) == {"generationConfig": expected}
    assert not caplog.records
    assert config_fields(config, capabilities_of("gemini-4-argon")) == {}
    assert "ignores temperature" in caplog.text


@pytest.mark.parametrize(
    "spelling",
    ["models/gemini-2.5-pro", "publishers/google/models/gemini-2.5-pro", "GEMINI-2.5-PRO", "gemini-2.5-pro-002"],
)
def test_a_model_is_known_in_any_spelling(spelling: str) -> None:
    assert capabilities_of(spelling) == capabilities_of("gemini-2.5-pro")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-2.5-flash", {"signatures": False, "thinking_budget": True, "media_in_results": False}),
        ("gemini-3-flash-preview", {"signatures": True, "thinking_budget": False, "media_in_results": True}),
        ("gemini-3.8-flash", {"sampling": True, "explicit_cache": True, "thinking_levels": ("low", "medium", "high")}),
        ("gemini-4-argon", {"sampling": False, "explicit_cache": False}),
        ("gemini-flash-latest", {"sampling": True, "explicit_cache": True, "signatures": True}),
        ("gemma-3-27b-it", {"functions": False, "system_instruction": False, "signatures": False}),
        ("gemma-4-31b-it", {"functions": False, "system_instruction": True}),
        ("gemini-2.5-flash-image", {"functions": False}),
        ("gemini-2.5-pro-preview-tts", {"functions": False}),
        ("gemini-embedding-001", {"functions": False}),
        ("gemini-2.0-flash", {"thinking_budget": False, "thinking_levels": ()}),
    ],
)
def test_families_differ(model: str, expected: dict[str, object]) -> None:
    known = capabilities_of(model)
    assert {name: getattr(known, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("api", "version", "call_ids", "server_side_calls", "streamed_arguments"),
    [
        (Api.DEVELOPER, "v1", True, True, False),
        (Api.DEVELOPER, "v1beta", True, True, False),
        (Api.VERTEX, "v1", False, False, True),
        (Api.VERTEX, "v1beta1", True, False, True),
    ],
)
def test_the_two_apis_differ(
    api: Api, version: str, call_ids: bool, server_side_calls: bool, streamed_arguments: bool
) -> None:
    known = capabilities_of(DEFAULT_MODEL, api, version)
    assert (known.call_ids, known.server_side_calls, known.streamed_arguments) == (
        call_ids,
        server_side_calls,
        streamed_arguments,
    )


@pytest.mark.requirement("S1-02")
@pytest.mark.parametrize(
    ("model", "successor"),
    [
        ("gemini-1.5-flash", DEFAULT_MODEL),
        ("gemini-1.5-flash-8b", "gemini-3.5-flash-lite"),
        ("models/gemini-1.5-pro-002", "gemini-3.1-pro-preview"),
        ("gemini-2.0-flash-lite", "gemini-3.5-flash-lite"),
        ("gemini-2.0-flash", DEFAULT_MODEL),
        ("gemini-pro", "gemini-3.1-pro-preview"),
        ("gemini-2.5-flash", None),
        ("gemini-3.8-flash", None),
        ("gemini-pro-latest", None),
        ("gemini-20", None),
    ],
)
def test_a_retired_model_has_a_successor(model: str, successor: str | None) -> None:
    assert successor_of(model) == successor
