"""JSON Schema as one model family accepts it: `adapt.py` is the entry, `dialect.py` says what a family accepts."""
