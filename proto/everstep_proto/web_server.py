"""Web server detection: recognises by gRPC's error text that an address is not a gRPC server."""

# Parts of gRPC's error texts for an answer in HTTP/1, for one that is not HTTP/2, and for one in
# HTTP/2 that is not gRPC's (404, or a page).
_WORDS = (
    "http1.x server",
    "expected settings frame",
    "http2 header with status",
    "no status received",
)


def is_web_server(details: str) -> bool:
    """Return whether a call has failed because what answered was not made for gRPC."""
    told = details.lower()
    return any(word in told for word in _WORDS)
