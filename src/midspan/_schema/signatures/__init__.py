"""The steps of `signature.py`: callables, docstrings and type hints as JSON Schema, and JSON as Python values."""
