"""What a connection says to bytes that are no request."""


class BadRequest(Exception):
    """Bytes that are no HTTP, or too many of them."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
