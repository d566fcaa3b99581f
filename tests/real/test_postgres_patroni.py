"""A controller whose database is a pair under Patroni, by the letter of docs/postgresql-ha.md."""

import asyncio
import contextlib
import itertools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from everstep_common.credential_file import CredentialFile
from everstep_common.reports import FindingRaised
from everstep_controller.core.events import Reported
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.reader import PostgresReader
from fakes.agent_stream import agent_stream
from fakes.controllers import ControllerProcess, environment, start_controller
from fakes.local_secret import SECRET_FILE
from fakes.waits import wait_until
from real.page_blocks import blocks
from real.patroni_pair import HEADING, PAGE, PatroniPair, lacking, patroni_pair

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.timeout(420),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]
_PACE_S = 0.05


@dataclass
class Sending:
    """An agent that sends a record every 50 ms, and again what was not acknowledged."""

    port: int
    # When each record was acknowledged, by the monotonic clock.
    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Send until the end of the block."""
        thread = threading.Thread(target=lambda: asyncio.run(self._send()))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    async def _send(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(grpc.aio.AioRpcError, EOFError):
                async with agent_stream(self.port, "node-1") as agent:
                    number = (await agent.hello()).acknowledged
                    while not self._over.is_set():
                        number += 1
                        await agent.finding(number)
                        await agent.acknowledged(number)
                        self.acknowledged.append((time.monotonic(), number))
                        await asyncio.sleep(_PACE_S)
            await asyncio.sleep(_PACE_S)

    @property
    def last(self) -> int:
        """Return the newest record that was acknowledged."""
        return self.acknowledged[-1][1] if self.acknowledged else 0

    def wait_for_more(self, count: int = 20) -> None:
        """Wait until more records are acknowledged."""
        goal = self.last + count
        wait_until(lambda: self.last >= goal)

    def gap_s(self, since_s: float) -> float:
        """Return the longest time without an acknowledgement since a moment."""
        times = [since_s, *(at for at, _ in self.acknowledged if at > since_s)]
        return max(later - before for before, later in itertools.pairwise(times))


@pytest.fixture(scope="module")
def pair() -> Iterator[PatroniPair]:
    """A pair in which user and database are made as the page says."""
    with patroni_pair() as running:
        (made,) = [one for one in blocks(PAGE, HEADING, "sh") if "createdb" in one]
        running.typed(made, running.leader(), "swordfish\nswordfish\n")
        yield running


def address_of(pair: PatroniPair, folder: Path) -> tuple[str, Path]:
    """Return the address of the page, and the file of its password."""
    password = folder / "password"
    password.write_text("swordfish\n")
    password.chmod(0o600)
    (toml,) = blocks(PAGE, HEADING, "toml")
    (address,) = re.findall(r'journal = "([^"]+)"', toml)
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in pair.members.values())
    # The servers are on loopback, and have no certificates.
    return address.replace("db-1.example,db-2.example", hosts).partition("?")[0], password


def findings(running: ControllerProcess) -> str:
    there = ["--controller", f"127.0.0.1:{running.port}", "--secret-file", str(SECRET_FILE)]
    asked = subprocess.run(
        [sys.executable, "-m", "everstep_cli.main", "findings", *there],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout


def journaled(url: str, password: Path) -> set[int]:
    with contextlib.closing(PostgresReader(Place(url, CredentialFile(password)))) as reader:
        events = [decode_event(stored.kind, stored.body) for stored in reader.events(0)]
    found = [event for event in events if isinstance(event, Reported)]
    return {event.origin.sequence for event in found if isinstance(event.report, FindingRaised)}


@contextmanager
def controller(folder: Path, url: str, password: Path) -> Iterator[ControllerProcess]:
    """Run one whose log somebody reads, for it has much to say."""
    trust = f'secret_file = "{SECRET_FILE}"\njournal_password_file = "{password}"\n'
    with start_controller(folder, journal=url, trust=trust) as running:
        assert running.process.stderr is not None
        threading.Thread(target=running.process.stderr.read).start()
        yield running


def test_a_killed_leader_and_a_switchover_lose_nothing_that_was_acknowledged(
    pair: PatroniPair, tmp_path: Path
) -> None:
    url, password = address_of(pair, tmp_path)
    with controller(tmp_path, url, password) as running:
        sending = Sending(running.port)
        with sending.going_on():
            sending.wait_for_more()
            killed_s, old = time.monotonic(), pair.leader()
            pair.kill(old)
            sending.wait_for_more(40)
            print(f"kill -9 of the leader: {sending.gap_s(killed_s):.1f} s without a commit")
            wait_until(lambda: "JournalUnreplicated" in findings(running))
            back_s = time.monotonic()
            pair.start(old)
            new = pair.wait_for_both()
            print(
                f"the old leader is a synchronous standby after {time.monotonic() - back_s:.1f} s"
            )
            wait_until(lambda: "JournalUnreplicated" not in findings(running))
            switched_s = time.monotonic()
            (switch,) = [one for one in blocks(PAGE, HEADING, "sh") if "switchover" in one]
            words = {"db-1": new, "db-2": old}
            pair.typed(re.sub(r"db-[12]", lambda found: words[found[0]], switch), new)
            wait_until(lambda: pair.leader() == old)
            sending.wait_for_more(40)
            print(f"switchover: {sending.gap_s(switched_s):.1f} s without a commit")
            pair.wait_for_both()
        assert running.process.poll() is None
        assert running.terminate() == 0
    assert_whole(url, password, sending)


def assert_whole(url: str, password: Path, sending: Sending) -> None:
    """See that all is kept that was acknowledged, once, and nothing is missing in between."""
    kept = journaled(url, password)
    assert kept >= {number for _, number in sending.acknowledged}
    assert kept == set(range(1, max(kept) + 1))


def test_a_strict_pair_waits_for_its_standby_and_goes_on_with_it(
    pair: PatroniPair, tmp_path: Path
) -> None:
    leader = pair.wait_for_both()
    (standby,) = set(pair.members) - {leader}
    url, password = address_of(pair, tmp_path)
    (strict,) = [one for one in blocks(PAGE, HEADING, "sh") if "strict" in one]
    with controller(tmp_path, url, password) as running:
        sending = Sending(running.port)
        with sending.going_on():
            sending.wait_for_more()
            pair.typed(strict, leader)
            pair.kill(standby)
            wait_until(lambda: "JournalFull" in findings(running))
            reached = sending.last
            assert "JournalUnreplicated" not in findings(running)
            pair.start(standby)
            sending.wait_for_more()
            wait_until(lambda: "JournalFull" not in findings(running))
            assert sending.last > reached
        assert running.terminate() == 0
    assert_whole(url, password, sending)
