"""The command line at the port of a web server: told from a controller, in each way to speak."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from everstep_cli.client.grpc_admin import connect
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from fakes.local_secret import SECRET_FILE


@contextmanager
def web_server(answer: Callable[[int], bytes]) -> Iterator[str]:
    """Answer every connection once it has asked, with what ``answer`` makes of its stream's id."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = threading.Thread(target=_answer_all, args=(listener, answer), daemon=True)
        asked.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            asked.join(20)


def _answer_all(listener: socket.socket, answer: Callable[[int], bytes]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(20)
            connection.sendall(answer(0))
            asked = b""
            while not (stream := _stream_asked(asked)) and (more := connection.recv(65536)):
                asked += more
            connection.sendall(answer(stream))
            while connection.recv(65536):
                continue


def _stream_asked(asked: bytes) -> int:
    """Return the stream of the first HEADERS frame that a client has sent (RFC 9113); 0: none."""
    at = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    while len(asked) >= at + 9:
        if asked[at + 3] == 1:
            return int.from_bytes(asked[at + 5 : at + 9], "big")
        at += 9 + int.from_bytes(asked[at : at + 3], "big")
    return 0


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _http_1(stream: int) -> bytes:
    return b"" if stream else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def _page(stream: int) -> bytes:
    return b"" if stream else b"<!DOCTYPE HTML><html>Error response 400</html>"


def _http_2(stream: int) -> bytes:
    # SETTINGS; then HEADERS that end the stream, with ":status 404" of HPACK's static table.
    return _frame(1, 5, stream, b"\x8d") if stream else _frame(4, 0, 0)


@pytest.mark.parametrize("answer", [_http_1, _page, _http_2])
def test_a_web_server_is_told_from_a_controller_with_what_to_name_instead(
    answer: Callable[[int], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with web_server(answer) as address:
        session = AdminSession(connect, screen(io.StringIO()), time.time_ns)
        code = run_command(
            session, ["nodes", "--controller", address, "--secret-file", str(SECRET_FILE)]
        )
    assert code == 1
    error = capsys.readouterr().err
    assert f"what answers at {address} is no controller but a web server" in error
    assert "--controller HOST:PORT" in error
    assert "404" not in error.replace(address, "")
    assert len(error.splitlines()) == 1
