"""Hands: what a model can have done, from Python functions to other processes."""
