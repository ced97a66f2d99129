"""OpenAI's Chat Completions API, and the many services that are compatible with it."""
