"""Claude models, by Anthropic's Messages API."""
