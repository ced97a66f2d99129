"""Arithmetic as people write it, exact where it can be, without ever running what it is given."""

from midspan.toolsets.calculator.tool import calculate, calculator_tool

__all__ = ["calculate", "calculator_tool"]
