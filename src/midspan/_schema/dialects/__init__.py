"""What stands behind `dialects.py`: the way from a schema to its form for one family of providers."""
