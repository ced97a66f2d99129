"""Doors: thin, and nobody imports them."""
