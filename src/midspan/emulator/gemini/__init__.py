"""The Gemini API behind the HTTP server: checks requests, asks a source for answers and injects faults."""
