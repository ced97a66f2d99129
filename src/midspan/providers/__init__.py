"""Models: each provider turns our values into its own wire form and back."""
