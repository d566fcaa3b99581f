"""The page in a real browser, of a large hostile fleet: what is read aloud, who is kept out."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from everstep_cli.page.access import Access
from everstep_cli.page.doors import Doors
from everstep_cli.page.live import VIEWERS_MAX
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin
from fakes.page_server import served_page
from fakes.waits import wait_until
from real.browsers import CHROMIUM, browser, visit

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="the browser is not installed (apt: chromium)"
    ),
]
_NODES = 2000
_HOSTILE = "<script>alert(1)</script>"


class _Large(FakeAdmin):
    """Two thousand nodes, one of a hundred lost, and a job that is called like a script."""

    def nodes(self, request: admin_pb2.ListNodesRequest | None = None) -> admin_pb2.ListNodesReply:
        found = []
        for number in range(_NODES):
            lost = number % 100 == 7
            node = admin_pb2.NodeSummary(
                node=f"gpu-{number:04}",
                domain=f"rack-{number // 32}",
                state="lost" if lost else "healthy",
                connected=not lost,
                reason="\x1b[2J\x00 it is silent" if lost else "",
            )
            found.append(node)
        troubled = request is not None and request.troubled
        summary = admin_pb2.FleetSummary(fleet_nodes=_NODES)
        listed = [one for one in found if not troubled or one.state == "lost"]
        return admin_pb2.ListNodesReply(nodes=listed, summary=summary)

    def jobs(self) -> admin_pb2.ListJobsReply:
        job = admin_pb2.JobSummary(job=_HOSTILE, state="running", reason=f"{_HOSTILE}\x07")
        return admin_pb2.ListJobsReply(jobs=[job])

    def job(self, name: str) -> admin_pb2.JobDetail:
        found = super().job("demo")
        found.summary.job = name
        found.slow.add(kind="rank", name="3", sentence=_HOSTILE, node="../../etc/passwd")
        return found


@dataclass(frozen=True, slots=True)
class _Server:
    port: int
    access: Access

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def address(self) -> str:
        return f"{self.root}login?token={self.access.new_token()}"

    def ask(self, path: str, session: str) -> socket.socket:
        """Return a connection on which something was asked."""
        connection = socket.create_connection(("127.0.0.1", self.port), 30)
        lines = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: everstep-session={session}"
        connection.sendall(f"{lines}\r\n\r\n".encode())
        return connection


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    """Yield the page of a large fleet, served from a thread."""
    with served_page(Doors(listen="127.0.0.1:0"), _Large()) as page:
        yield _Server(page.port, page.access)


def test_a_large_fleet_is_read_aloud_domain_by_domain(server: _Server) -> None:
    with browser() as running:
        shown = visit(running, server.address())
        page = shown.page
        page.get_by_role("heading", name=f"{_NODES} nodes").wait_for()
        assert page.locator("a.tile").count() == _NODES
        told = page.locator("main").aria_snapshot().replace("'", "")
        assert '- heading "rack-1 32" [level=3]' in told
        lost = [told.index(f'- heading "rack-{rack} 32: 1 lost" [level=3]') for rack in (3, 9, 12)]
        assert lost == sorted(lost)
        assert '- link "gpu-0000: healthy"' in told
        assert '- link "gpu-0007: lost"' in told
        assert len(re.findall(r'- link "gpu-[0-9]{4}: ', told)) == _NODES
        # Those that are lost are named as well, with what is known of them.
        assert '- row "gpu-0007 lost' in told
        assert "\x1b" not in told
        # All nodes are one stop of the tab key.
        assert page.locator('a.tile[tabindex="0"]').count() == 1
        # A job that is called like a script is a name, here and on its own page.
        page.get_by_role("link", name=_HOSTILE).click()
        page.get_by_role("heading", name=_HOSTILE).wait_for()
        assert page.get_by_role("link", name="../../etc/passwd").count() == 1
        assert page.evaluate("() => document.querySelectorAll('main script').length") == 0
        assert shown.complaints == []


def test_200_browsers_follow_and_one_more_is_told_to_wait(server: _Server) -> None:
    # One person has fewer streams than that.
    sessions = [server.access.open_session(server.access.new_token()) or "" for _ in range(41)]
    session = sessions[-1]
    with ExitStack() as stack:
        asked = (server.ask("/live", sessions[number // 5]) for number in range(VIEWERS_MAX))
        followers = [stack.enter_context(one) for one in asked]
        heads = [_until(one, b"tiles") for one in followers]
        assert all(head.startswith(b"HTTP/1.1 200") for head in heads)
        with server.ask("/live", session) as more:
            assert _until(more, b"\r\n\r\n").startswith(b"HTTP/1.1 503")
        # One that leaves makes room.
        followers[0].close()
        wait_until(lambda: _follows(server, session))


def _follows(server: _Server, session: str) -> bool:
    with server.ask("/live", session) as asked:
        return _until(asked, b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def _until(connection: socket.socket, words: bytes) -> bytes:
    """Return what comes, up to some words, or all of it."""
    found = b""
    while words not in found and (more := connection.recv(65536)):
        found += more
    return found


@pytest.mark.parametrize(
    "path", ["/node/../../etc/passwd", "/static/../app.py", "/static/..%2fapp.py", "/job/..%00"]
)
def test_a_path_that_leads_elsewhere_is_refused(server: _Server, path: str) -> None:
    session = server.access.open_session(server.access.new_token()) or ""
    with server.ask(path, session) as asked:
        answer = _until(asked, b"</html>") if "job" in path else _until(asked, b"\r\n\r\n")
    status = answer.split()[1]
    assert status == b"404" or (status == b"200" and b"root:" not in answer)
