"""The embedded default: a program that picks tools by their words, fills in arguments and never invents a fact."""
