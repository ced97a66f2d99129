"""Persistent storage: journals of runs, which do not decode events, and private files."""
