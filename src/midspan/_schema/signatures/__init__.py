"""What stands behind `signature.py`: callables, hints, docstrings, and JSON made into values."""
