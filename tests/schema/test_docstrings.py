"""Docstrings of every style."""

import inspect
import subprocess
import sys

import pytest

from midspan._schema import docstrings
from midspan._schema.docstrings import Docstring

pytestmark = pytest.mark.requirement("S0-14")


def parse_docstring(text: str) -> Docstring:
    """Parse a docstring as Python gives it for a function."""
    return docstrings.parse_docstring(inspect.cleandoc(text))


BOTH = {"city": "The city, such as Paris.", "days": "How many days,\nup to ten."}

STYLES = {
    "google": """Look up the weather.

        Uses the nearest station.

        Args:
            city: The city, such as Paris.
            days (int, optional): How many days,
                up to ten.

        Raises:
            ValueError: if there is none.
        """,
    "google without blank lines": """Look up the weather.

        Uses the nearest station.
        Args:
            city (str): The city, such as Paris.
            days: How many days,
                up to ten.
        Raises:
            ValueError: if there is none.
        """,
    "google with two spaces": """Look up the weather.

      Uses the nearest station.

      Arguments:
        city: The city, such as Paris.
        days: How many days,
          up to ten.
      """,
    "google with keyword arguments": """Look up the weather.

        Uses the nearest station.

        Args:
            city: The city, such as Paris.

        Keyword Args:
            days: How many days,
                up to ten.
        """,
    "numpy": """Look up the weather.

        Uses the nearest station.

        Parameters
        ----------
        city : str
            The city, such as Paris.
        days : int, optional
            How many days,
            up to ten.

        Raises
        ------
        ValueError
            If there is none.
        """,
    "numpy without blank lines or types": """Look up the weather.

        Uses the nearest station.
        Parameters
        ----------
        city
            The city, such as Paris.
        days: int
            How many days,
            up to ten.
        """,
    "sphinx": """Look up the weather.

        Uses the nearest station.

        :param city: The city, such as Paris.
        :param int days: How many days,
            up to ten.
        :type city: str
        :raises ValueError: if there is none.
        """,
    "sphinx without blank lines": """Look up the weather.

        Uses the nearest station.
        :param str city: The city, such as Paris.
        :param days: How many days,
            up to ten.
        :rtype: str
        """,
    "sphinx with types of several words": """Look up the weather.

        Uses the nearest station.

        :param list of str city: The city, such as Paris.
        :keyword dict[str, int] days: How many days,
            up to ten.
        """,
    "epydoc": """Look up the weather.

        Uses the nearest station.

        @param city: The city, such as Paris.
        @type city: str
        @param days: How many days,
            up to ten.
        """,
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())
def test_all_docstring_styles_give_the_same_descriptions(text):
    assert parse_docstring(text) == Docstring("Look up the weather.\n\nUses the nearest station.", BOTH)


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_docstring_gives_no_description(text):
    assert parse_docstring(text) == Docstring()


def test_one_line_is_the_description():
    assert parse_docstring("Say: hello.") == Docstring("Say: hello.")


@pytest.mark.parametrize(
    "text",
    [
        "\n    Args:\n        city: The city.\n        days: How many.\n    ",
        "Args:\n        city: The city.\n        days: How many.\n    ",
        "Parameters\n    ----------\n    city : str\n        The city.\n    days\n        How many.\n    ",
        ":param city: The city.\n    :param days: How many.\n    ",
        "\n    @param city: The city.\n    @param days: How many.",
    ],
)
def test_a_docstring_without_a_description_keeps_those_of_its_parameters(text):
    assert parse_docstring(text) == Docstring("", {"city": "The city.", "days": "How many."})


def test_a_docstring_of_one_line_may_describe_a_parameter():
    assert parse_docstring(":param city: The city.") == Docstring("", {"city": "The city."})


def test_sections_after_the_first_line_keep_their_indentation():
    text = "Args:\n        city: The city.\n\n    Returns:\n        The weather.\n    "
    assert parse_docstring(text) == Docstring("Returns:\n    The weather.", {"city": "The city."})


def test_text_around_the_parameters_stays_in_the_description():
    text = """Look up.

        Note:
            Not at night.

        Args:
            city: The city.

        Use it only for today.

        Returns:
            The weather.

        Example:
            >>> look_up("Paris")
        """
    assert parse_docstring(text) == Docstring(
        "Look up.\n\nNote:\n    Not at night.\n\nUse it only for today.\n\n"
        'Returns:\n    The weather.\n\nExample:\n    >>> look_up("Paris")',
        {"city": "The city."},
    )


def test_return_sections_of_numpy_and_sphinx_stay_in_the_description():
    numpy = """Look up.

        Parameters
        ----------
        city : str
            The city.

        Returns
        -------
        str
            The weather.
        """
    sphinx = """Look up.

        :param city: The city.
        :returns: The weather.
        """
    assert parse_docstring(numpy) == Docstring(
        "Look up.\n\nReturns\n-------\nstr\n    The weather.", {"city": "The city."}
    )
    assert parse_docstring(sphinx) == Docstring("Look up.\n\nReturns: The weather.", {"city": "The city."})


def test_one_description_may_be_of_several_parameters():
    text = """Move.

        Parameters
        ----------
        x, y : float
            Where to.
        **options
            The rest.
        """
    assert parse_docstring(text).parameters == {"x": "Where to.", "y": "Where to.", "options": "The rest."}


def test_descriptions_may_have_colons_lists_and_paragraphs():
    text = """Move.

        Args:
            mode (Literal["a", "b"]): One of:
                - a: the first
                - b: the second
            place: The place: its name.

                With the street.
        """
    assert parse_docstring(text).parameters == {
        "mode": "One of:\n- a: the first\n- b: the second",
        "place": "The place: its name.\nWith the street.",
    }


def test_attributes_of_classes_are_parameters():
    google = """A place.

        Attributes:
            x: To the right.
        """
    sphinx = """A place.

        :ivar x: To the right.
        """
    numpy = """A place.

        Attributes
        ----------
        x : int
            To the right.
        """
    for text in (google, sphinx, numpy):
        assert parse_docstring(text) == Docstring("A place.", {"x": "To the right."})


@pytest.mark.parametrize(
    "text",
    [
        "Do.\n\nArgs:\n    city - The city\n    days - The days",
        "Do.\n\nArgs:\ncity: The city.",
        "Steps:\n\n    1. one: this\n    2. two: that\n\nNote: nothing else.",
    ],
)
def test_a_docstring_of_no_known_style_is_the_description(text):
    assert parse_docstring(text) == Docstring(text)


@pytest.mark.parametrize("text", ["Sum.\n\n: : x", "Sum.\n\n:", "Sum.\n\n:param:\n:raises"])
def test_a_docstring_that_breaks_the_parser_is_the_description(text):
    assert parse_docstring(text).parameters == {}
    assert parse_docstring(text).description.startswith("Sum.")


def test_the_parser_is_loaded_only_for_a_docstring_with_more_than_one_line():
    code = (
        "import sys\n"
        "from midspan._schema.docstrings import parse_docstring\n"
        "parse_docstring('One line.')\n"
        "before = 'docstring_parser' in sys.modules\n"
        "parse_docstring('Two.\\n\\nArgs:\\n    x: y')\n"
        "print(before, 'docstring_parser' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
