"""Recordings of runs: what was asked and answered, in files of JSON lines, without the secrets."""
