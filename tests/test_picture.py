"""The picture of the terminal in the README."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "terminal.svg"


def test_picture_loads_nothing_from_elsewhere() -> None:
    text = PICTURE.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    for word in ("http", "@font-face", "@import", "href", "<script"):
        assert word not in text


def test_picture_shows_the_question_the_calls_and_the_answer() -> None:
    shown = "".join(ElementTree.parse(PICTURE).getroot().itertext()).replace("\xa0", " ")
    for words in ("midspan ask", "calculate", "get_time", "434"):
        assert words in shown
