"""Shapes: what a value looks like, said in JSON Schema."""
