"""The line editor of the chat, with the lines of earlier days; needs prompt_toolkit, from the extra `cli`."""

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from midspan._cli.chat.slash import COMMANDS


class EditedLines:
    """Enter asks; Alt-Enter, or Enter after a backslash, begins a new line; what is pasted stays one question."""

    is_terminal = True

    def __init__(self, history: Path) -> None:
        history.touch(mode=0o600)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            key_bindings=_keys(),
            multiline=True,
            completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
            complete_while_typing=False,
            prompt_continuation=lambda *_: "… ",
            enable_open_in_editor=True,
        )

    def read(self) -> str:
        return self._session.prompt("> ")


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
