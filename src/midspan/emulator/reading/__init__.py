"""JSON of requests, read as the API reads it: by the messages of `midspan.providers.gemini.wire`, field by field."""
