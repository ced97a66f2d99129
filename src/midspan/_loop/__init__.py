"""The agent loop: request a response, run its tool calls, repeat."""
