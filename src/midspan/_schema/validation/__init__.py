"""The steps of `arguments.py`: defaults, coercion, validation, and the messages for what is wrong."""
