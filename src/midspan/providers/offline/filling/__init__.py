"""Arguments: what a prompt names, put where a tool wants it."""
