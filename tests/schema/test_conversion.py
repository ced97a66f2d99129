"""Settings from files and keyword arguments."""

import msgspec
import pytest

from midspan._schema.conversion import settings_of
from midspan.errors import ConfigError


class Window(msgspec.Struct, forbid_unknown_fields=True):
    width: int = 80
    title: str = ""


def test_settings_are_read_and_others_are_left_out() -> None:
    assert settings_of(Window, {"width": 40}, "window.toml") == Window(40)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 1}, "w: unknown setting 'widht'; did you mean width? known settings: width, title"),
        ({"zzz": 1}, "w: unknown setting 'zzz'; known settings: width, title"),
        ({"width": "wide"}, 'w: width: expected integer, got string "wide"'),
    ],
)
def test_wrong_settings_are_reported(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(Window, values, "w")
    assert str(caught.value) == message
