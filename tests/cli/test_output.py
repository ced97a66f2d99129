"""Progress of a run in plain lines and with a spinner."""

import pytest

from midspan._cli.live_progress import LiveProgress
from midspan._cli.output import Display, PlainProgress
from midspan._types.events import RequestRetry, SourceUnavailable, ToolProgress, ToolStart, TurnRetry, TurnStart
from midspan._types.parts import ToolCall


@pytest.mark.parametrize("display_type", [PlainProgress, LiveProgress])
def test_retries_and_missing_tools_are_shown(
    display_type: type[Display], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    display = display_type()
    for event in (
        SourceUnavailable("files", "the server exited"),
        TurnStart(1),
        RequestRetry(1, 1, 2.5, 503, "503 from the model\x1b[2J"),
        TurnRetry(1, "the answer was empty"),
        ToolStart(1, ToolCall("1", "backup", {"name": "orders"})),
        ToolProgress(1, "1", fraction=0.5, message="halfway"),
    ):
        display.show(event)
    display.close()
    shown = capsys.readouterr().err
    for text in (
        "no tools from files: the server exited",
        "503, waiting 2 s: 503 from the model\\x1b[2J",
        "asking the model again: the answer was empty",
    ):
        assert text in shown
