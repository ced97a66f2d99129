"""The offline model: a deterministic program that calls a tool only where a question leaves one reading."""
