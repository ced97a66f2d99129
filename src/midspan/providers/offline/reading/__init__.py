"""A prompt, read: its words, and what they name."""
