"""Failed calls in words: why another process could not be asked, without gRPC's own words."""

import re

from everstep_proto.web_server import is_web_server

# Trailing metadata of a call that the controller itself has refused, in a sentence of its own.
SAID_KEY = "everstep-said"

# What operating systems, TLS and gRPC call the causes, the first that is found: words for people,
# and what of it is worth knowing.
_CAUSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("hostname verification", "peer name"), "its certificate is for another name", "TLS"),
    (("certificate_verify_failed", "certificate verify failed"), "its certificate is not trusted "
     "here", "TLS: certificate verify failed"),
    (("certificate", "handshake", "ssl", "wrong_version_number"), "it and this node do not trust "
     "each other", "TLS handshake failed"),
    (("no such file",), "nobody listens there", "no such socket"),
    (("connection refused",), "nobody listens there", "connection refused"),
    (("name or service not known", "dns", "domain name", "resolving", "resolution"),
     "its name is not known here", "name resolution failed"),
    (("no route to host", "unreachable"), "there is no way to it", "no route to host"),
    (("timed out", "timeout", "deadline exceeded", "keepalive watchdog"), "it does not answer",
     "timeout"),
    (("connection reset", "broken pipe", "socket closed", "stream removed", "goaway",
      "transport closed", "end of tcp", "endpoint closing"), "the connection broke off", "reset"),
    (("permission denied",), "its socket may not be used", "permission denied"),
)  # fmt: skip
# Marks of sentences that nobody wrote for people: addresses of gRPC's, its calls, nested errors.
_NOISE = re.compile(
    r"ipv[46]:|recvmsg|sendmsg|grpc_|last error|[{}]|\bRPC\b|<[A-Za-z_.]+|fd:|http2|errors? in",
    re.I,
)
_CODE_WORDS = {"UNAVAILABLE": "it does not answer", "CANCELLED": "the call was broken off"}
_DETAIL_MAX = 300


def in_words(code: str, details: str) -> str:
    """Return how a call has failed, in a few words; what the other side said itself is kept."""
    if is_web_server(details):
        return "what answers there is no controller but a web server, or the port of its /metrics"
    told = details.lower()
    for marks, words, cause in _CAUSES if _is_noise(code, details) else ():
        if any(mark in told for mark in marks):
            return f"{words} ({cause})"
    if _is_noise(code, details) or not details:
        return f"{_CODE_WORDS.get(code, 'the call failed')} ({code})"
    return details[:_DETAIL_MAX]


def _is_noise(code: str, details: str) -> bool:
    """Return whether gRPC itself said so, and no controller."""
    return _NOISE.search(details) is not None or (
        code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL", "CANCELLED")
        and any(mark in details.lower() for marks, _, _ in _CAUSES for mark in marks)
    )
