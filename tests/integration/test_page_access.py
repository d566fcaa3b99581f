"""Who gets into the page by real connections, and what those get who only hold places."""

import http.client
import os
import pwd
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_cli.page.access import SESSIONS_MAX
from everstep_cli.page.connection import Limits
from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import COOKIE, COOKIE_TLS
from fakes.authority import Authority
from fakes.cli_admin import FakeAdmin
from fakes.page_server import Answer, ServedPage, UnixConnection, ask, served_page
from fakes.waits import wait_until

_LOGIN = pwd.getpwuid(os.getuid()).pw_name
_HEADER = "X-Remote-User"
_QUICK = Limits(request_s=1.0, unread_s=1.0, look_s=0.1)
_NEVER_READ = 4096


def _plain(page: ServedPage) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)


def _cookie(page: ServedPage, name: str = COOKIE) -> dict[str, str]:
    """Return the header of somebody whom an address has let in."""
    return {"Cookie": f"{name}={page.access.open_session(page.access.new_token())}"}


# --- TLS and certificates ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TlsPage:
    page: ServedPage
    authority: Authority
    folder: Path

    def ask(self, certificate: str = "", role: str = "", **headers: str) -> Answer:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if certificate:
            tls = self.authority.issue(certificate, role)
            context.load_cert_chain(str(tls.certificate), str(tls.key))
        connection = http.client.HTTPSConnection(
            "localhost", self.page.port, timeout=10, context=context
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(connection, headers=named)


@pytest.fixture(scope="module")
def tls_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_TlsPage]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    own = authority.issue("localhost", "page", "page")
    doors = Doors(
        listen="127.0.0.1:0",
        names=("localhost",),
        certificate=str(own.certificate),
        key=str(own.key),
        client_ca=str(folder / "ca.pem"),
        user_header=_HEADER,
        proxy_certificate="nginx",
        operators=frozenset({"ann"}),
    )
    with served_page(doors, FakeAdmin()) as page:
        yield _TlsPage(page, authority, folder)


@pytest.mark.parametrize(
    ("name", "role", "told"),
    [("ann", "viewer", "ann, viewer"), ("bob", "operator", "bob, operator")],
)
def test_a_certificate_says_who_somebody_is(
    tls_page: _TlsPage, name: str, role: str, told: str
) -> None:
    answer = tls_page.ask(name, role)
    assert answer.code == 200
    assert told in answer.text


@pytest.mark.parametrize("role", ["agent", "page", "admin"])
def test_a_certificate_of_another_role_opens_nothing(tls_page: _TlsPage, role: str) -> None:
    assert tls_page.ask("node-1", role).code == 401


def test_without_a_certificate_it_takes_a_session(tls_page: _TlsPage) -> None:
    assert tls_page.ask().code == 401
    token = tls_page.page.access.new_token()
    session = tls_page.page.access.open_session(token)
    assert tls_page.ask(Cookie=f"{COOKIE_TLS}={session}").code == 200
    # By its other name a server at another port, without TLS, could have set it.
    assert tls_page.ask(Cookie=f"{COOKIE}={session}").code == 401


def test_a_certificate_of_another_authority_is_refused(tls_page: _TlsPage, tmp_path: Path) -> None:
    other = Authority(tmp_path).issue("ann", "operator")
    context = ssl.create_default_context(cafile=str(tls_page.folder / "ca.pem"))
    context.load_cert_chain(str(other.certificate), str(other.key))
    connection = http.client.HTTPSConnection(
        "localhost", tls_page.page.port, timeout=10, context=context
    )
    with pytest.raises(OSError, match=r"alert|reset|EOF|closed"):
        ask(connection)


def test_the_header_counts_from_the_proxy_alone(tls_page: _TlsPage) -> None:
    assert tls_page.ask(X_Remote_User="ann").code == 401
    forged = tls_page.ask("eve", "viewer", X_Remote_User="ann")
    assert "eve, viewer" in forged.text
    proxied = tls_page.ask("nginx", "viewer", X_Remote_User="ann")
    assert "ann, operator" in proxied.text
    assert tls_page.ask("nginx", "viewer").code == 401
    # Not even with a session: what a proxy brings is of whom it names.
    session = tls_page.page.access.open_session(tls_page.page.access.new_token())
    assert tls_page.ask("nginx", "viewer", Cookie=f"{COOKIE_TLS}={session}").code == 401


# --- a proxy at a Unix socket --------------------------------------------------------------------


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder with a path short enough for a socket in it, which everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _proxied(folder: Path, login: str = _LOGIN) -> Doors:
    return Doors(
        listen=f"unix:{folder / 'page.sock'}",
        names=("localhost",),
        user_header=_HEADER,
        proxy_user=login,
        operators=frozenset({"ann"}),
    )


def test_at_the_socket_the_proxy_says_who_asks(short_folder: Path) -> None:
    doors = _proxied(short_folder)
    with served_page(doors, FakeAdmin()):
        connection = UnixConnection(short_folder / "page.sock")
        assert "ann, operator" in ask(connection, headers={_HEADER: "ann"}).text
        assert "eve, viewer" in ask(connection, headers={_HEADER: "eve"}).text
        assert ask(connection).code == 401
        assert ask(connection, headers={_HEADER: "eve", "Host": "evil.example"}).code == 400


def test_another_user_of_the_machine_is_not_heard_at_the_socket(short_folder: Path) -> None:
    other = next(one.pw_name for one in pwd.getpwall() if one.pw_uid != os.getuid())
    with (
        served_page(_proxied(short_folder, other), FakeAdmin()),
        pytest.raises((OSError, http.client.HTTPException)),
    ):
        ask(UnixConnection(short_folder / "page.sock"), headers={_HEADER: "ann"})


# --- those who hold places -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick_page() -> Iterator[ServedPage]:
    """Yield a page that waits for a second where one in use waits for a minute."""
    with served_page(Doors(listen="127.0.0.1:0"), FakeAdmin(), _QUICK) as page:
        yield page


def _open(page: ServedPage, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", page.port), 10)
    connection.sendall(said)
    return connection


def _is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        # Its answer is there, and the next request never comes whole.
        b"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\nX: ",
    ],
)
def test_two_hundred_who_never_end_a_request_are_ended_and_hold_nobody_up(
    quick_page: ServedPage, said: bytes
) -> None:
    slow = [_open(quick_page, said) for _ in range(200)]
    assert ask(_plain(quick_page), headers=_cookie(quick_page)).code == 200
    wait_until(lambda: all(map(_is_ended, slow)), 30)
    for one in slow:
        one.close()


def test_who_sends_a_letter_at_a_time_has_no_longer(quick_page: ServedPage) -> None:
    slow = _open(quick_page, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")

    def ended() -> bool:
        try:
            slow.send(b"a")
        except OSError:
            return True
        return _is_ended(slow)

    wait_until(ended, 30)
    slow.close()


def test_a_crowd_of_strangers_costs_a_session_nothing() -> None:
    few = Limits(strangers_max=20)
    with served_page(Doors(listen="127.0.0.1:0"), FakeAdmin(), few) as page:
        cookie = _cookie(page)
        kept = _plain(page)
        kept.request("GET", "/session", headers=cookie)
        assert kept.getresponse().read()
        crowd = [_open(page) for _ in range(200)]
        # The newest strangers remain, and the connection of a session is none of them.
        wait_until(lambda: sum(not _is_ended(one) for one in crowd) <= 20)
        kept.request("GET", "/session", headers=cookie)
        assert kept.getresponse().status == 200
        kept.close()
        assert ask(_plain(page), headers=cookie).code == 200
        for one in crowd:
            one.close()


def test_one_session_has_so_many_connections_and_no_more() -> None:
    with served_page(Doors(listen="127.0.0.1:0"), FakeAdmin(), Limits(per_person_max=4)) as page:
        head = "".join(f"{name}: {value}\r\n" for name, value in _cookie(page).items())
        asked = f"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode()
        streams = [_open(page, asked) for _ in range(12)]
        wait_until(lambda: sum(not _is_ended(one) for one in streams) == 4)
        for one in streams:
            one.close()


def test_who_reads_no_answer_is_ended(quick_page: ServedPage) -> None:
    """Pages are asked for one after the other, and none is read."""
    head = "".join(f"{name}: {value}\r\n" for name, value in _cookie(quick_page).items())
    asked = f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode() * 400
    unread = socket.socket()
    unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NEVER_READ)
    unread.connect(("127.0.0.1", quick_page.port))
    unread.sendall(asked)
    connections = quick_page.server.server_state.connections
    wait_until(lambda: connections)
    wait_until(lambda: not connections, 60)
    unread.close()
    assert ask(_plain(quick_page), headers=_cookie(quick_page)).code == 200


def test_a_stream_ends_with_its_session(quick_page: ServedPage) -> None:
    cookie = _cookie(quick_page)
    head = "".join(f"{name}: {value}\r\n" for name, value in cookie.items())
    stream = _open(quick_page, f"GET /live HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    assert b"200 OK" in stream.recv(65536)
    quick_page.access.end_session(cookie["Cookie"].partition("=")[2])
    wait_until(lambda: _is_ended(stream))
    stream.close()


def test_what_is_no_request_is_ended_without_a_line_in_the_log(
    quick_page: ServedPage, caplog: pytest.LogCaptureFixture
) -> None:
    for said in (
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
    ):
        connection = _open(quick_page, b"")
        try:
            connection.sendall(said)
            connection.settimeout(10)
            answer = connection.recv(65536)
        except OSError:
            answer = b""
        connection.close()
        assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert caplog.messages == []


def test_sessions_are_bounded_and_the_newest_stay(quick_page: ServedPage) -> None:
    first, *_, last = [_cookie(quick_page) for _ in range(SESSIONS_MAX + 1)]
    assert ask(_plain(quick_page), headers=first).code == 401
    assert ask(_plain(quick_page), headers=last).code == 200


def test_nobody_says_for_another_where_a_request_comes_from(quick_page: ServedPage) -> None:
    forged = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", _HEADER: "root"}
    token = quick_page.access.new_token()
    answer = ask(_plain(quick_page), f"/login?token={token}", forged)
    assert answer.code == 303
    assert answer.headers["location"] == "/"
    assert "Secure" not in answer.headers["set-cookie"]
    assert ask(_plain(quick_page), headers=forged).code == 401


# --- the command ---------------------------------------------------------------------------------


def _command(*options: str) -> list[str]:
    return [sys.executable, "-m", "everstep.entry", "page", *options]


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def test_the_token_is_in_its_file_alone_and_a_new_start_knows_no_session_of_before(
    short_folder: Path,
) -> None:
    file = short_folder / "address"
    options = ["--listen", "127.0.0.1:0", "--address-file", str(file), "--role", "operator"]
    options += ["--controller", f"unix:{short_folder}/none.sock"]
    cookies: dict[str, str] = {}
    for start in (1, 2):
        process = subprocess.Popen(
            _command(*options), env=_environment(), stderr=subprocess.PIPE, text=True
        )
        wait_until(file.exists, 60)
        address = file.read_text(encoding="ascii").strip()
        assert file.stat().st_mode & 0o777 == 0o600
        token = address.partition("token=")[2]
        port = int(address.split(":")[2].partition("/")[0])
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        shown += Path(f"/proc/{process.pid}/environ").read_bytes()
        assert token.encode() not in shown
        if start == 2:
            told = ask(http.client.HTTPConnection("127.0.0.1", port), headers=cookies)
            assert told.code == 401
        opened = ask(http.client.HTTPConnection("127.0.0.1", port), f"/login?token={token}")
        assert opened.code == 303
        assert token not in str(opened.headers)
        cookies = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
        told = ask(http.client.HTTPConnection("127.0.0.1", port), headers=cookies)
        assert "operator" in told.text
        away = ask(http.client.HTTPConnection("127.0.0.1", port), "/", cookies)
        assert away.code == 502
        assert "no controller answers" in away.text
        assert file.read_text(encoding="ascii").strip() not in ("", address)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert said == ""
        file.unlink()
