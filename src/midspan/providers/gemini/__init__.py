"""Gemini, by the Developer API and by Vertex."""
