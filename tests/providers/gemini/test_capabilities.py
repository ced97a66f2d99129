import msgspec
import pytest
from msgspec.structs import replace

from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of, successor_of
from midspan.providers.gemini.encode import request_body


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
    request = ModelRequest(RequestConfig(model, settings=settings), History())
    expected = {"temperature": 0.5, "topP": 0.5, "topK": 5}
    body = msgspec.json.decode(request_body(request, capabilities_of(model)))
    assert body == {"contents": [], "generationConfig": expected}
    assert not caplog.records
    assert request_body(request, capabilities_of("gemini-4-argon")) == b'{"contents":[]}'
    assert "ignores temperature" in caplog.text


@pytest.mark.parametrize(
    "spelling",
    ["models/gemini-2.5-pro", "publishers/google/models/gemini-2.5-pro", "GEMINI-2.5-PRO", "gemini-2.5-pro-002"],
)
def test_a_model_is_known_in_any_spelling(spelling: str) -> None:
    assert capabilities_of(spelling) == capabilities_of("gemini-2.5-pro")


_SECOND = Capabilities(
    signatures=False,
    media_in_results=False,
    builtin_with_functions=False,
    json_with_functions=False,
    server_side_calls=False,
    thinking_levels=(),
    thinking_budget=True,
)
_GEMMA_3 = Capabilities(
    functions=False, system_instruction=False, signatures=False, thinking_levels=(), explicit_cache=False
)
_FOURTH = Capabilities(sampling=False, explicit_cache=False)
_ON_VERTEX = Capabilities(Api.VERTEX, server_side_calls=False, server_side_parts=False, streamed_arguments=True)
_WITH_MINIMAL = Capabilities(thinking_levels=("minimal", "low", "medium", "high"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-2.5-flash", _SECOND),
        ("gemini-3-flash-preview", _WITH_MINIMAL),
        ("gemini-3.6-flash", _WITH_MINIMAL),
        ("gemini-3.8-flash", Capabilities()),
        ("gemini-3.1-pro-preview", Capabilities()),
        ("gemini-flash-latest", Capabilities()),
        ("gemini-4-argon", _FOURTH),
        ("gemini-4.1-flash", _FOURTH),
        ("gemma-3-27b-it", _GEMMA_3),
        ("gemma-4-31b-it", Capabilities(functions=False, signatures=False, explicit_cache=False)),
        ("gemini-2.5-flash-image", replace(_SECOND, functions=False, thinking_budget=False)),
        ("gemini-2.5-pro-preview-tts", replace(_SECOND, functions=False, thinking_budget=False)),
        ("gemini-3-pro-image-preview", Capabilities(functions=False, thinking_levels=())),
        ("gemini-2.0-flash", replace(_SECOND, thinking_budget=False)),
        ("gemini-pro", _SECOND),
        ("learnlm-2", _SECOND),
    ],
)
def test_families_differ(model: str, expected: Capabilities) -> None:
    assert capabilities_of(f"models/{model}") == expected


@pytest.mark.parametrize(
    ("api", "version", "expected"),
    [
        (Api.DEVELOPER, "v1", Capabilities()),
        (Api.DEVELOPER, "v1beta", Capabilities()),
        (Api.VERTEX, "v1", replace(_ON_VERTEX, call_ids=False)),
        (Api.VERTEX, "v1beta1", _ON_VERTEX),
    ],
)
def test_the_two_apis_differ(api: Api, version: str, expected: Capabilities) -> None:
    assert capabilities_of(f"publishers/google/models/{DEFAULT_MODEL}", api, version) == expected


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
