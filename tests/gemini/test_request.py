from typing import Any

import msgspec
import pytest

from midspan.gemini import Client, SafetySetting
from midspan.gemini.request import RequestOptions
from midspan.providers.gemini.wire import GenerateContentRequest, GenerationConfig
from tests.gemini.recorder import Recorder

EVERY_SETTING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "candidate_count": 1,
    "max_output_tokens": 100,
    "stop_sequences": ["a"],
    "response_logprobs": True,
    "logprobs": 3,
    "presence_penalty": 0.1,
    "frequency_penalty": -0.1,
    "seed": 7,
    "response_mime_type": "application/json",
    "response_schema": {"type": "STRING"},
    "response_json_schema": {"type": "string"},
    "response_format": {"a_b": 1},
    "response_modalities": ["TEXT"],
    "media_resolution": "MEDIA_RESOLUTION_LOW",
    "speech_config": {"languageCode": "de"},
    "thinking_config": {"includeThoughts": True, "thinkingBudget": 5, "thinkingLevel": "LOW"},
    "image_config": {"aspectRatio": "1:1"},
    "enable_enhanced_civic_answers": False,
    "audio_transcription_config": {"x": 1},
    "translation_config": {"x": 1},
    "audio_timestamp": True,
    "routing_config": {"x": 1},
    "model_selection_config": {"x": 1},
}
EVERY_FIELD: dict[str, Any] = {
    "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    "labels": {"a_b": "c"},
    "service_tier": "flex",
    "store": False,
    "continuation_token": "t",
    "model_armor_config": {"promptTemplateName": "p"},
    "generation_output_config": {"x": 1},
}
ANSWER = {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}]}


def test_the_tables_hold_every_field_that_there_is() -> None:
    others = {"extra", "model", "contents", "system_instruction", "tools", "tool_config", "cached_content"}
    assert EVERY_SETTING.keys() == set(GenerationConfig.__struct_fields__) - {"extra"}
    assert EVERY_FIELD.keys() == set(GenerateContentRequest.__struct_fields__) - others - {"generation_config"}


@pytest.mark.parametrize("name", EVERY_SETTING)
def test_every_generation_parameter_reaches_the_api(client: Client, server: Recorder, name: str) -> None:
    server.answer(ANSWER)
    value = EVERY_SETTING[name]
    camel = next(one.encode_name for one in msgspec.structs.fields(GenerationConfig) if one.name == name)
    sent = {camel: value}
    if name in ("response_schema", "response_json_schema"):
        sent["responseMimeType"] = "application/json"
    if name in RequestOptions.__annotations__:
        client.generate_content("x", **{name: value})
        assert server.last.body["generationConfig"] == sent
    for config in ({name: value}, {camel: value}, GenerationConfig(**{name: value})):
        list(client.stream_generate_content("x", generation_config=config))
        assert server.last.body["generationConfig"] == sent
    client.generate_content("x", generation_config={name: None})
    assert "generationConfig" not in server.last.body


@pytest.mark.parametrize("name", EVERY_FIELD)
def test_every_other_field_of_a_request_reaches_the_api(client: Client, server: Recorder, name: str) -> None:
    server.answer(ANSWER)
    camel = next(one.encode_name for one in msgspec.structs.fields(GenerateContentRequest) if one.name == name)
    client.generate_content("x", **{name: EVERY_FIELD[name]})
    assert server.last.body[camel] == EVERY_FIELD[name]


def test_messages_in_a_tuple_are_read_like_those_in_a_list(client: Client, server: Recorder) -> None:
    server.answer(ANSWER)
    client.generate_content("x", safety_settings=(SafetySetting(category="A", threshold="OFF"),), stop_sequences=("a",))
    assert server.last.body["safetySettings"] == [{"category": "A", "threshold": "OFF"}]
    assert server.last.body["generationConfig"] == {"stopSequences": ["a"]}


def test_a_cache_can_be_named_by_itself(client: Client, server: Recorder) -> None:
    server.answer({"name": "cachedContents/1"})
    cache = client.caches.create("x")
    assert client.caches.get(cache).name == "cachedContents/1"
    assert server.last.path == "/v1beta/cachedContents/1"
    server.answers[:] = []
    server.answer(ANSWER)
    client.generate_content("x", cached_content=cache)
    assert server.last.body["cachedContent"] == "cachedContents/1"
