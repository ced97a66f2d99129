"""How other models write a call when they print it instead of making it."""
