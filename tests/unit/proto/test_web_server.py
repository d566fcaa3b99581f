"""A web server where a controller was meant, told from gRPC's own words."""

import pytest

from everstep_proto.call_failures import in_words
from everstep_proto.web_server import is_web_server


@pytest.mark.parametrize(
    "details",
    [
        "failed to connect to all addresses; last error: Trying to connect an http1.x server",
        "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Failed "
        "parsing HTTP/2 (Expected SETTINGS frame as the first frame, got frame type 79)",
        "Received http2 header with status: 404",
        "No status received",
    ],
)
def test_what_was_not_made_for_grpc_is_called_so(details: str) -> None:
    assert is_web_server(details)
    assert "no controller" in in_words("UNAVAILABLE", details)


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to"
            " connect to remote host: Connection refused",
            "nobody listens there (connection refused)",
        ),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: FAILED_PRECONDITION: unix:/c.sock:"
            " connect failed: addr: unix:/c.sock error: No such file or directory",
            "nobody listens there (no such socket)",
        ),
        (
            "UNAVAILABLE",
            "Stream removed (recvmsg:Connection reset by peer (104))",
            "the connection broke off (reset)",
        ),
        ("UNAVAILABLE", "Socket closed", "the connection broke off (reset)"),
        (
            "UNAVAILABLE",
            "DNS resolution failed for nowhere:7433: C-ares status is not ARES_SUCCESS"
            " qtype=A name=nowhere is_balancer=0: Domain name not found",
            "its name is not known here (name resolution failed)",
        ),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.9:7433: Failed to"
            " connect to remote host: No route to host",
            "there is no way to it (no route to host)",
        ),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.9:7433: Ssl"
            " handshake failed: SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:"
            "CERTIFICATE_VERIFY_FAILED",
            "its certificate is not trusted here (TLS: certificate verify failed)",
        ),
        ("UNAVAILABLE", "keepalive watchdog timeout", "it does not answer (timeout)"),
        ("UNKNOWN", "Error in service handler! <class 'X'>", "the call failed (UNKNOWN)"),
        ("UNAVAILABLE", "", "it does not answer (UNAVAILABLE)"),
        # What a controller says itself is a sentence already.
        ("UNAVAILABLE", "the controller stops", "the controller stops"),
        (
            "UNAUTHENTICATED",
            "the certificate of gpu-1 was revoked",
            "the certificate of gpu-1 was revoked",
        ),
    ],
)
def test_other_trouble_is_told_in_plain_words_with_its_cause(
    code: str, details: str, words: str
) -> None:
    assert not is_web_server(details)
    assert in_words(code, details) == words
