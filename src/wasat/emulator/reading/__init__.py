"""JSON of requests, read as the API reads it: by the messages of `wasat.providers.gemini.wire`, field by field."""
