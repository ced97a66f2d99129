import dataclasses
import enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Text
from midspan.errors import ConfigError, MalformedResponseError, SchemaError
from midspan.gemini import Client, GenerateContentResponse, GoogleSearch, Schema
from tests.gemini.recorder import Recorder


class Model(pydantic.BaseModel):
    city: str
    temp: float = pydantic.Field(gt=-300)


@dataclasses.dataclass
class Data:
    city: str
    tags: list[str] = dataclasses.field(default_factory=list)


class Typed(TypedDict):
    city: str


class Tuple(NamedTuple):
    city: str


class Shape(msgspec.Struct):
    city: str


class Word(enum.Enum):
    HOT = "hot"
    COLD = "cold"


class Family(msgspec.Struct):
    name: str
    children: "list[Family]" = []


def said(text: str) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]}


def answer(text: str) -> GenerateContentResponse:
    return GenerateContentResponse(ModelResponse(Message("model", (Text(text),)), FinishReason.END))


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (Model, '{"city": "Oslo", "temp": 4}', Model(city="Oslo", temp=4)),
        (Data, '{"city": "Oslo"}', Data("Oslo")),
        (Typed, '{"city": "Oslo"}', {"city": "Oslo"}),
        (Tuple, '{"city": "Oslo"}', Tuple("Oslo")),
        (Shape, '{"city": "Oslo"}', Shape("Oslo")),
        (list[int], "[1, 2.0]", [1, 2]),
        (list[Model], '[{"city": "Oslo", "temp": 4}]', [Model(city="Oslo", temp=4)]),
        (dict[str, Data], '{"a": {"city": "Oslo"}}', {"a": Data("Oslo")}),
        (Word, '"hot"', Word.HOT),
        (int, "5", 5),
        (int | None, "null", None),
        (Literal["a", "b"], '"a"', "a"),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (Family, '{"name": "a", "children": [{"name": "b"}]}', Family("a", [Family("b")])),
    ],
)
def test_an_answer_is_parsed_as_the_requested_python_type(
    client: Client, server: Recorder, form: Any, text: str, value: Any
) -> None:
    server.answer(said(text))
    response = client.generate_content("x", response_schema=form)
    config = server.last.body["generationConfig"]
    assert config.keys() == {"responseMimeType", "responseJsonSchema"}
    assert config["responseMimeType"] == "application/json"
    assert response.parsed(form) == value
    assert type(response.parsed(form)) is type(value)
    assert response.parsed() == value
    with client.stream_generate_content("x", response_json_schema=form) as stream:
        assert list(stream)
    assert stream.response.parsed() == value
    assert client.generate_content_with_auto_tools("x", response_schema=form).parsed() == value
    client.generate_content("x", response_json_schema=form)
    assert server.last.body["generationConfig"] == config
    client.generate_content("x", generation_config={"responseSchema": form})
    assert server.last.body["generationConfig"] == config


def test_the_schema_of_a_type_is_what_the_model_gets(client: Client, server: Recorder) -> None:
    server.answer(said("{}"))
    client.generate_content("x", response_schema=Data)
    assert server.last.body["generationConfig"]["responseJsonSchema"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "(default [])"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_schema_that_the_api_cannot_express_is_sent_as_json_schema(client: Client, server: Recorder) -> None:
    class Outer(pydantic.BaseModel):
        inner: Model
        kind: Literal[1, 2]

    server.answer(said("{}"))
    schema = Outer.model_json_schema()
    client.generate_content("x", response_schema=schema)
    assert server.last.body["generationConfig"]["responseJsonSchema"] == schema
    client.generate_content("x", response_schema=Schema(type="OBJECT", properties={"a": Schema(type="STRING")}))
    assert server.last.body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    }


def test_names_that_the_api_does_not_take_find_back() -> None:
    class Odd(pydantic.BaseModel):
        user: str = pydantic.Field(alias="user name")

    assert answer('{"user_name": "Ann"}').parsed(Odd).user == "Ann"


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        (Model, '{"city": "Oslo"}', "temp: is required but missing"),
        (Model, '{"city": "Oslo", "temp": -400}', "temp: expected more than -300"),
        (Data, '{"city": 5, "tags": ["a", 7, null]}', r"tags\[2\]: expected string, got null"),
        (Shape, '{"city": "Oslo", "country": "NO"}', "country: is not a property of this object"),
        (Word, '"warm"', "must be one of"),
        (Annotated[int, msgspec.Meta(gt=5)], "3", "expected more than 5"),
        (int, "five", "not the requested JSON"),
        (Any, "[" * 100_000, "not the requested JSON"),
        (int, "", "not the requested JSON"),
    ],
)
def test_an_answer_of_the_wrong_type_is_an_error_with_the_problem(form: Any, text: str, words: str) -> None:
    with pytest.raises(MalformedResponseError, match=words):
        answer(text).parsed(form)


def test_an_invalid_type_is_an_error() -> None:
    with pytest.raises(SchemaError, match="output cannot be 5: "):
        answer("5").parsed(5)
    with pytest.raises(SchemaError, match="is not JSON serializable"):
        answer("5").parsed(Client)


def test_tools_beside_structured_output_are_an_error_for_older_models(client: Client, server: Recorder) -> None:
    server.answer(said("5"))
    with pytest.raises(ConfigError, match="tools or structured output, not both"):
        client.generate_content("x", model="gemini-2.5-flash", tools=[GoogleSearch()], response_schema=int)
    client.generate_content("x", tools=[GoogleSearch()], response_schema=int)
    assert server.last.body.keys() == {"contents", "tools", "generationConfig"}


def test_mime_type_of_the_caller_stays_and_a_type_without_a_schema_asks_for_json(
    client: Client, server: Recorder
) -> None:
    server.answer(said("5"))
    choice = {"type": "STRING", "enum": ["a"]}
    client.generate_content("x", response_schema=choice, response_mime_type="text/x.enum")
    assert server.last.body["generationConfig"] == {"responseMimeType": "text/x.enum", "responseSchema": choice}
    client.generate_content("x", response_schema=Any)
    assert server.last.body["generationConfig"] == {"responseMimeType": "application/json"}
    with pytest.raises(ConfigError, match="leave response_mime_type out"):
        client.generate_content("x", response_schema=Word, response_mime_type="text/x.enum")
