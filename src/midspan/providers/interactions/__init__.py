"""Gemini's Interactions API, as `Gemini(…, api="interactions")` uses it."""
