"""Settings from flags, the environment and the settings file."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, midspan


def configure(home: Path, text: str) -> None:
    folder = home / "config" / "midspan"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text, "utf-8", "surrogateescape")


def test_settings_file_applies_and_flags_override_it(tmp_path: Path) -> None:
    configure(tmp_path, 'model = "offline"\ntools = ["beside.py"]\nmax_turns = 1\n')
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


def test_flags_override_the_environment_and_the_environment_overrides_the_file(tmp_path: Path) -> None:
    configure(tmp_path, 'model = "of-the-file:x"\ntools = ["of_the_file"]\n')
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


def test_home_that_is_not_a_directory_has_no_settings_and_no_keys(tmp_path: Path) -> None:
    nowhere = {"HOME": "/dev/null", "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    ended = midspan("ask", "-m", "offline", "What is 2 + 2?", home=tmp_path, **nowhere)
    assert (ended.code, "4" in ended.out, "this conversation is not logged" in ended.err) == (0, True, True), ended.err
    chat = midspan("chat", "-m", "offline", home=tmp_path, stdin="What is 2 + 2?", **nowhere)
    assert (chat.code, "4" in chat.out) == (0, True), chat.err
    keys = midspan("keys", home=tmp_path, **nowhere)
    assert (keys.code, "no keys are stored" in keys.err) == (0, True)
    terminal = Terminal("chat", "-m", "offline", home=tmp_path, **nowhere)
    try:
        terminal.wait_for("the model is offline")
        terminal.wait_for("shows the commands")
        terminal.wait_for(">")
        terminal.type("/quit\r")
        assert terminal.end()[0] == 0
    finally:
        terminal.close()


def test_doctor_reports_keys_that_cannot_be_read_and_goes_on(tmp_path: Path) -> None:
    configure(tmp_path, "")
    (tmp_path / "config" / "midspan" / "keys.json").write_text("{broken")
    asked = midspan("ask", "-m", "offline", "hi", home=tmp_path)
    assert (asked.code, asked.err.endswith("keys.json: it is not a JSON object of strings\n")) == (2, True)
    doctor = midspan("doctor", home=tmp_path, COLUMNS="500", GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:9")
    assert doctor.code == 1
    assert any("keys.json" in line for line in doctor.out.splitlines() if line.startswith("problem"))
    assert "not configured" in doctor.out, "the last check"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = ", "is not valid TOML"),
        ('modle = "x"', "unknown setting 'modle'; did you mean model? known settings: model, tools, system, max_turns"),
        ("model = 3", "model: expected string or null, got 3"),
        ("max_turns = 0", "max_turns: expected at least 1, got 0"),
        ("max_turns = true", "max_turns: expected integer or null, got true"),
        ("tools = [1]", "tools[0]: expected string, got integer 1"),
        ("system = '\udcff'", "is not valid TOML: 'utf-8' codec can't decode"),
    ],
)
def test_invalid_settings_file_is_reported_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    configure(tmp_path, text)
    ended = midspan("ask", "-m", "offline", "hi", home=tmp_path)
    assert ended.code == 2
    assert words in ended.err
    assert "config.toml" in ended.err
    assert len(ended.err.splitlines()) == 1
    doctor = midspan("doctor", home=tmp_path)
    assert doctor.code == 1
    assert words in doctor.out


@pytest.mark.parametrize("text", ["log = false", "log_days = 3"])
def test_server_refuses_settings_of_the_log_of_questions(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.toml").write_text(text)
    ended = midspan("serve", "--config", "server.toml", home=tmp_path)
    assert (ended.code, f"server.toml: unknown setting '{text.split()[0]}'; " in ended.err) == (2, True), ended.err
