"""A web server where a controller was meant, told from gRPC's own words."""

import pytest

from everstep_proto.web_server import in_words, is_web_server


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


def test_other_trouble_is_told_as_it_is() -> None:
    details = "failed to connect to all addresses; last error: Connection refused"
    assert not is_web_server(details)
    assert in_words("UNAVAILABLE", details) == f"UNAVAILABLE: {details}"
