"""A chat that is saved to a file and continues where it ended. Needs a key in GEMINI_API_KEY; see README.md."""

import sys
from pathlib import Path

from midspan import Agent, Chat, from_json, to_json
from midspan.errors import MidspanError


def load(agent: Agent[str], file: Path) -> Chat[str]:
    """Return the saved chat, or a new one."""
    return Chat(agent, from_json(file.read_bytes(), "messages")) if file.exists() else Chat(agent)


def main(file: Path) -> None:
    agent = Agent("gemini:gemini-3.8-flash", system="Be brief.")
    chat = load(agent, file)
    print(f"{len(chat.messages)} messages so far")
    for question in map(str.strip, sys.stdin):
        try:
            chat = chat.ask_sync(question)  # a chat is immutable: this is the next one
        except MidspanError as error:
            print(f"that failed: {error}")
            continue
        print(chat.text)
        file.write_bytes(to_json(chat.messages))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "chat.json"))
