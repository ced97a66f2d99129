"""Models that only write text: tools in the prompt, calls read from the answer."""
