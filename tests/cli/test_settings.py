"""Where settings come from, and which of them win."""

from pathlib import Path

import pytest

from tests.cli.terminal import midspan


def configure(home: Path, text: str) -> None:
    folder = home / "config" / "midspan"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_the_file_says_what_is_not_said_elsewhere(tmp_path: Path) -> None:
    configure(tmp_path, 'model = "offline"\ntools = "beside.py"\nmax_turns = 1\n')
    (tmp_path / "config" / "midspan" / "beside.py").write_text(
        "from midspan import tool\n@tool(read_only=True)\ndef stock_level(item: str) -> int:\n"
        "    'How many pieces of an item are in stock.'\n    return 3\n"
    )
    ended = midspan("ask", "How many pieces of the item 'lamp' are in stock?", home=tmp_path)
    assert ended.code == 124
    assert "stock_level(" not in ended.out
    ended = midspan("ask", "--max-turns", "3", "How many pieces of the item 'lamp' are in stock?", home=tmp_path)
    assert ended.code == 0
    assert "stock_level(" in ended.err


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    configure(tmp_path, 'model = "of-the-file:x"\ntools = "of_the_file"\n')
    assert "of-the-file" in midspan("ask", "hi", "--no-tools", home=tmp_path).err
    assert (
        "of-the-environment"
        in midspan("ask", "hi", "--no-tools", home=tmp_path, MIDSPAN_MODEL="of-the-environment:x").err
    )
    assert midspan("ask", "-m", "offline", "--no-tools", "hi", home=tmp_path, MIDSPAN_MODEL="x:x").code == 0
    assert "of_the_file" in midspan("tools", home=tmp_path).err
    (tmp_path / "a.py").write_text("def first(): 'The first of two tools.'\n")
    (tmp_path / "b.py").write_text("def second(): 'The second of two tools.'\n")
    listed = midspan("tools", home=tmp_path, MIDSPAN_TOOLS="a.py:b.py").out
    assert "first()" in listed
    assert "second()" in listed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = ", "is no TOML"),
        ('modle = "x"', "did you mean model?"),
        ("colour = 1", "known: model"),
        ("model = 3", "model is the name of a model, not 3"),
        ("max_turns = 0", "max_turns is a whole number above 0"),
        ("max_turns = true", "max_turns is a whole number above 0"),
        ("tools = [1]", "tools is a text or a list of texts"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    configure(tmp_path, text)
    ended = midspan("ask", "-m", "offline", "hi", home=tmp_path)
    assert ended.code == 2
    assert words in ended.err
    assert "config.toml" in ended.err
    assert len(ended.err.splitlines()) == 1
    doctor = midspan("doctor", home=tmp_path)
    assert doctor.code == 1
    assert words in doctor.out
