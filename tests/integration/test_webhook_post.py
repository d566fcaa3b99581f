"""One request of a webhook against a real server: bad answers, deadlines, TLS, names that lie."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from everstep_controller.webhooks.egress import EgressError, Target, target_of
from everstep_controller.webhooks.http_post import Answer, Poster, PostError, tls_context
from fakes.receiver import GOOD, Receiver, Request, answer, receiver, say

pytestmark = pytest.mark.timeout(60)

_PATIENCE_S = 20.0


def no_names(host: str, port: int) -> list[str]:
    """Resolve nothing but what is an address already."""
    del port
    return [host]


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def post(
    url: str,
    timeout_s: float = _PATIENCE_S,
    tls: ssl.SSLContext | None = None,
    resolve: Callable[[str, int], list[str]] = no_names,
) -> Answer:
    target = target_of(url, ("127.0.0.1", "hooks.example.org"))
    poster = Poster(tls or tls_context(""), resolve)
    return poster.post(target, {"X-One": "1"}, b'{"a": 1}', timeout_s)


def test_a_request_is_what_was_asked_for(server: Receiver) -> None:
    assert post(server.url(path="/hook/secret?x=1")).status == 204
    (request,) = server.requests
    assert request.path == "/hook/secret?x=1"
    assert request.body == b'{"a": 1}'
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["x-one"] == "1"


def test_the_words_and_the_wish_of_an_answer_are_told(server: Receiver) -> None:
    server.react = say(answer(503, "busy \x1b[2J", Retry_After="17"))
    found = post(server.url())
    assert found == Answer(503, "busy \\x1b[2J", 17.0)
    assert found.sentence == "it answered 503: busy \\x1b[2J"


def test_a_redirect_is_not_followed(server: Receiver) -> None:
    server.react = say(answer(302, "", Location=server.url(path="/elsewhere")))
    found = post(server.url())
    assert found.status == 302
    assert "not followed" in found.said
    assert [request.path for request in server.requests] == ["/hook/secret"]


def _drip(connection: socket.socket, _: Request) -> None:
    """Say a byte at a time, for ever: each is in time, and the answer never comes."""
    for byte in GOOD[:-1] + b"X-Y: " + b"z" * 10_000:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def _silent(server: Receiver) -> Callable[[socket.socket, Request], None]:
    return lambda *_: (server.over.wait(_PATIENCE_S), None)[1]


@pytest.mark.parametrize("manner", ["silent", "drips"])
def test_an_answer_that_takes_too_long_is_none(server: Receiver, manner: str) -> None:
    server.react = _silent(server) if manner == "silent" else _drip
    with pytest.raises(PostError, match=r"no whole answer within 0\.3 s"):
        post(server.url(), timeout_s=0.3)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00\xff\xfe rubbish",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
    ids=[
        "nothing",
        "rubbish",
        "ssh",
        "no status",
        "half of its head",
        "half",
        "half a chunk",
        "long",
        "many",
    ],
)
def test_rubbish_and_half_an_answer_are_none(server: Receiver, said: bytes) -> None:
    server.react = say(said)
    with pytest.raises(PostError, match=r"no whole HTTP|no connection"):
        post(server.url())


def test_rubbish_that_repeats_the_path_does_not_spread_it(server: Receiver) -> None:
    server.react = say(b"cannot POST /hook/secret\r\n")
    with pytest.raises(PostError, match="no whole HTTP") as caught:
        post(server.url())
    assert "secret" not in str(caught.value)


def test_a_long_answer_is_read_only_in_part(server: Receiver) -> None:
    server.react = say(answer(200, "x" * 100_000))
    assert len(post(server.url()).said) == 200


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(PostError, match="no connection: Connection refused"):
        post(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"])
def test_a_name_that_leads_to_this_machine_or_to_metadata_is_not_connected_to(
    server: Receiver, address: str
) -> None:
    url = f"https://hooks.example.org:{server.port}/secret"
    with pytest.raises(EgressError, match="nothing is sent there"):
        post(url, resolve=lambda *_: ["192.0.2.1", address])
    assert not server.requests


def test_a_name_that_nobody_resolves_is_told() -> None:
    def unknown(*_: object) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(PostError, match="Name or service not known"):
        post("https://hooks.example.org/", resolve=unknown)


def test_a_resolver_that_hangs_is_not_waited_for(server: Receiver) -> None:
    def hangs(*_: object) -> list[str]:
        server.over.wait(_PATIENCE_S)
        return []

    with pytest.raises(PostError, match=r"within 0\.2 s"):
        post("https://hooks.example.org/", timeout_s=0.2, resolve=hangs)


# --- TLS -----------------------------------------------------------------------------------------


def _authority(folder: Path) -> tuple[trustme.CA, str]:
    authority, file = trustme.CA(), folder / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return authority, str(file)


def _serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_a_receiver_with_a_certificate_of_the_named_authority_is_sent_to(tmp_path: Path) -> None:
    authority, file = _authority(tmp_path)
    with receiver(_serving(authority, "127.0.0.1")) as server:
        assert post(server.url("https"), tls=tls_context(file)).status == 204


@pytest.mark.parametrize("fault", ["unknown authority", "another name"])
def test_a_certificate_that_does_not_hold_gets_nothing(tmp_path: Path, fault: str) -> None:
    authority, file = _authority(tmp_path)
    name = "other.example.org" if fault == "another name" else "127.0.0.1"
    with receiver(_serving(authority, name)) as server:
        with pytest.raises(PostError, match="certificate is not trusted"):
            post(server.url("https"), tls=tls_context(file if name[0] == "o" else ""))
        assert not server.requests


def test_a_receiver_that_speaks_no_tls_gets_nothing(server: Receiver) -> None:
    with pytest.raises(PostError, match=r"no connection|no whole answer"):
        post(server.url("https"), timeout_s=2)
    assert not server.requests


def test_a_host_without_any_address_is_told() -> None:
    target = Target("hooks.example.org", 443, "/", True)
    with pytest.raises(PostError, match="has no address"):
        Poster(tls_context(""), lambda *_: []).post(target, {}, b"", 1)
