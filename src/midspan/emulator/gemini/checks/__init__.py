"""The rules of the API; every error is worded like the real server words it."""
