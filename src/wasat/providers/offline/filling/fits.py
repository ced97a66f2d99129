"""How well a thing suits a parameter, as a score, and the value that it would have there."""

from typing import Any

Fit = tuple[float, Any]
"""A score below zero is no fit."""

NONE: Fit = (-1.0, None)
