"""Journals of runs, in memory and in SQLite, which do not decode events; files that are replaced as a whole."""
