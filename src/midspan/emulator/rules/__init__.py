"""The rules of the API, one module for each family of them; each refuses in the words of the real server."""
