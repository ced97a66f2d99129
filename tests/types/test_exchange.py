"""Requests to a model and its usage."""

from midspan._types.exchange import RequestConfig, Usage
from midspan._types.specs import BuiltinTool, ToolSpec


def test_usage_is_added_field_by_field() -> None:
    usage = Usage(1, 2, 3, 4, 5, 6) + Usage(10, 20, 30, 40, 50, 60)
    assert usage == Usage(11, 22, 33, 44, 55, 66)
    assert usage.total == 11 + 22 + 33 + 55


def test_value_derived_from_a_config_is_computed_once_for_each_key() -> None:
    config, made = RequestConfig("m"), []

    def make(key: int) -> int:
        made.append(key)
        return key * 10

    assert [config.derived(key, make, key) for key in (1, 2, 1)] == [10, 20, 10]
    assert made == [1, 2]


def test_config_keeps_the_last_64_derived_values() -> None:
    config, made = RequestConfig("m"), []
    for key in (*range(64), 0, 64, 1, 0):
        config.derived(key, made.append, key)
    assert made == [*range(64), 64, 0]


def test_config_knows_whether_it_has_tools_of_the_provider() -> None:
    assert RequestConfig("m", tools=(ToolSpec("f"), BuiltinTool("googleSearch"))).has_builtins
    assert not RequestConfig("m", tools=(ToolSpec("f"),)).has_builtins
