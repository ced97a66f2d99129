"""HTTP/1.1 on asyncio and httptools, and the framing of streamed responses."""
