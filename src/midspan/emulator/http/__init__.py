"""A small HTTP/1.1 server whose replies can pause and break off; it knows nothing about Gemini."""
