"""Streams whose certificate counts no more: which end, why, and that they do not end together."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from everstep_controller.api.fleet.sessions import Session, Sessions, StreamEnd
from everstep_controller.api.fleet.stream_certificates import StreamCertificates
from everstep_proto.tls import Identity, Role
from fakes.authority import Authority
from fakes.jumping_loop import simulate

_NOW = datetime.now(UTC)


class _Fleet:
    """Open streams of nodes that have shown a certificate of an authority."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sessions, self.now_s = folder, Sessions(), _NOW.timestamp()
        self.authority = Authority(folder)
        self.watch = StreamCertificates(
            self.sessions, folder / "ca.pem", lambda: self.now_s, random.Random(1)
        )

    def open(self, node: str, *, lasts_s: float = 3600) -> Session:
        ends = _NOW + timedelta(seconds=lasts_s)
        tls = self.authority.issue(node, "agent", ends=ends)
        assert tls.certificate is not None
        content = tls.certificate.read_bytes()
        session = self.sessions.open(node, f"{node}-box")
        session.shown = lambda: {"x509_pem_cert": [content], "x509_pem_cert_chain": [content]}
        session.until_s = ends.timestamp()
        return session

    def replace_authority(self) -> None:
        other = self.folder / "new"
        other.mkdir()
        self.authority = Authority(other)
        (self.folder / "ca.pem").write_bytes((other / "ca.pem").read_bytes())


async def _end_of(session: Session) -> tuple[float, StreamEnd]:
    """Wait until a stream ends; return when that was, and how."""
    with pytest.raises(StreamEnd) as told:
        await session.next_messages()
    return asyncio.get_running_loop().time(), told.value


async def _watch(fleet: _Fleet, seconds: float) -> None:
    running = asyncio.create_task(fleet.watch.run())
    await asyncio.sleep(seconds)
    running.cancel()


@pytest.fixture
def fleet(tmp_path: Path) -> _Fleet:
    return _Fleet(tmp_path)


def test_a_stream_goes_on_while_its_certificate_counts(fleet: _Fleet) -> None:
    session = fleet.open("n0")
    simulate(_watch(fleet, 600))
    assert not session.ending


def test_one_whose_certificate_has_ended_is_ended_and_its_agent_is_to_come_again(
    fleet: _Fleet,
) -> None:
    session, other = fleet.open("n0", lasts_s=60), fleet.open("n1")
    fleet.now_s += 61
    simulate(_watch(fleet, 30))
    assert (session.ending, session.renews) == (True, True)
    assert (other.ending, other.renews) == (False, False)
    _, end = asyncio.run(_end_of(session))
    assert end.code is grpc.StatusCode.ABORTED
    assert end.sentence == (
        "its certificate has ended: another stream takes the one that the agent's files have now"
    )


def test_those_of_an_authority_that_was_replaced_end_and_those_of_the_new_one_do_not(
    fleet: _Fleet,
) -> None:
    old = fleet.open("n0")

    async def rotate() -> None:
        running = asyncio.create_task(fleet.watch.run())
        await asyncio.sleep(1)
        fleet.replace_authority()
        new = fleet.open("n1")
        await asyncio.sleep(30)
        running.cancel()
        assert (old.ending, new.ending) == (True, False)

    simulate(rotate())
    _, end = asyncio.run(_end_of(old))
    assert "the authority of the certificate was replaced" in end.sentence


def test_a_file_that_cannot_be_read_for_a_moment_ends_no_stream(fleet: _Fleet) -> None:
    session = fleet.open("n0")

    async def lose() -> None:
        running = asyncio.create_task(fleet.watch.run())
        await asyncio.sleep(1)
        content = (fleet.folder / "ca.pem").read_bytes()
        (fleet.folder / "ca.pem").unlink()
        await asyncio.sleep(30)
        (fleet.folder / "ca.pem").write_bytes(content[: len(content) // 2])
        await asyncio.sleep(30)
        (fleet.folder / "ca.pem").write_bytes(content)
        await asyncio.sleep(30)
        running.cancel()

    simulate(lose())
    assert not session.ending


def test_a_fleet_whose_certificates_end_together_does_not_come_back_together(
    fleet: _Fleet,
) -> None:
    sessions = [fleet.sessions.open(f"n{number}", "") for number in range(1000)]
    for session in sessions:
        session.until_s = fleet.now_s - 1
    ended: list[float] = []

    async def watch() -> None:
        await fleet.watch.end_stale_streams()
        begun_s = asyncio.get_running_loop().time()
        for told in asyncio.as_completed(map(_end_of, sessions)):
            ended.append((await told)[0] - begun_s)

    simulate(watch())
    assert len(ended) == len(sessions)
    assert max(ended) <= 10.0
    for second in range(10):
        at_once = sum(second <= at_s < second + 1 for at_s in ended)
        assert 60 <= at_once <= 140, "100 handshakes a second, more or less"


def test_no_stream_is_opened_for_a_certificate_that_has_ended_since_its_channel_opened(
    fleet: _Fleet,
) -> None:
    identity = Identity("n0", Role.AGENT, until_s=fleet.now_s + 60)
    assert fleet.watch.trouble(identity) == ""
    fleet.now_s += 61
    assert fleet.watch.trouble(identity) == "the certificate has ended"


def test_an_authority_that_is_replaced_during_a_look_is_looked_at_by_the_next_one(
    fleet: _Fleet,
) -> None:
    sessions = [fleet.open(f"n{number}") for number in range(60)]
    first = (fleet.folder / "ca.pem").read_bytes()

    async def rotate() -> None:
        await fleet.watch.end_stale_streams()
        # Both are trusted for a while, and the old one goes while streams are looked at for that.
        other = fleet.folder / "new"
        other.mkdir()
        Authority(other)
        (fleet.folder / "ca.pem").write_bytes(first + (other / "ca.pem").read_bytes())
        look = asyncio.create_task(fleet.watch.end_stale_streams())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (fleet.folder / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
        await look
        await fleet.watch.end_stale_streams()
        await asyncio.sleep(10)

    simulate(rotate())
    assert all(session.ending for session in sessions)
