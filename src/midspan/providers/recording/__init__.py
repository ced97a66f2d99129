"""Recordings: the requests, responses and tool calls of runs, as JSON lines without secrets."""
