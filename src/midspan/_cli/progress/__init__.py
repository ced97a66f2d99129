"""What is shown of a run while it goes on, on stderr."""
