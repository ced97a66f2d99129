"""JSON Schema: built from type hints, validated against, and adapted to model families."""
