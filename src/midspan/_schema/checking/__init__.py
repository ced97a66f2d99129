"""What stands behind `arguments.py`: defaults, mending, validation and the words for what is wrong."""
