"""Gemini, through the Developer API or Vertex."""
