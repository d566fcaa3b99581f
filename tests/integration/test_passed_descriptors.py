"""A real agent with a job, to which somebody passes descriptors whose close takes an hour."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everstep_agent.health.socket import ask_agent
from everstep_common.frames import encode, header
from everstep_common.rank_messages import Attach
from fakes import older_kernel
from fakes.lingering import LingeringSockets
from integration.counting import PATIENCE_S, ended, launch, said
from integration.real_fleet import Place, RealFleet, running_fleet

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

_SOCKETS = ("agent.sock", "health.sock", "nvhcd.sock")
_NODE = "node-0"
# Connections that the agent ends unread, because the user has as many as it may (of health.sock).
_IDLE = 32
# Long beside every answer, and short beside the hour that a close would take.
_ANSWER_S = 10.0
_STEPS = 400
_ATTACH = Attach(protocol=0, version="", job="none", token="", generation=0, rank=0)
_PASSRIGHTS = 83


def _kernel_has_passrights() -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, _PASSRIGHTS, 1)
        return True
    return False


@contextlib.contextmanager
def _connected(path: Path, count: int = 1) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(count)]
        for connection in made:
            connection.settimeout(_ANSWER_S)
            connection.connect(os.fspath(path))
        yield made


def _before_the_first_frame(attack: socket.socket, lingering: LingeringSockets) -> None:
    lingering.pass_over(attack, b"\0")


def _within_a_frame(attack: socket.socket, lingering: LingeringSockets) -> None:
    attack.sendall(header(1000) + b'{"type": ')
    lingering.pass_over(attack, b" " * 100)


def _behind_a_frame(attack: socket.socket, lingering: LingeringSockets) -> None:
    attack.sendall(encode(_ATTACH))
    lingering.pass_over(attack, encode(_ATTACH))


def _with_garbage(attack: socket.socket, lingering: LingeringSockets) -> None:
    lingering.pass_over(attack, b"\xff" * 100 + b"\n")


def _with_an_urgent_byte(attack: socket.socket, lingering: LingeringSockets) -> None:
    lingering.pass_over(attack, b"!", socket.MSG_OOB)
    attack.sendall(header(10))


_ATTACKS: tuple[Callable[[socket.socket, LingeringSockets], None], ...] = (
    _before_the_first_frame,
    _within_a_frame,
    _behind_a_frame,
    _with_garbage,
    _with_an_urgent_byte,
)


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class _Attacker:
    """Whoever passes descriptors, and what became of them."""

    def __init__(self, fleet: RealFleet, lingering: LingeringSockets) -> None:
        self._fleet = fleet
        self._run = fleet.folder / _NODE / "run"
        self._agent = fleet.agents[_NODE].process.pid
        self._lingering = lingering
        self.passed = self.refused = 0

    def attack_everywhere(self) -> None:
        """Make every attack on every socket, and see that others are answered after each."""
        for name in _SOCKETS:
            for attack in _ATTACKS:
                with _connected(self._run / name) as (connection,):
                    self._attack(attack, connection)
                    self._others_are_answered()

    def attack_unread(self) -> None:
        """Pass descriptors on connections that are one too many, so that nobody reads them."""
        with _connected(self._run / "health.sock", _IDLE):
            for _ in range(5):
                with _connected(self._run / "health.sock") as (connection,):
                    self._attack(_before_the_first_frame, connection)
        # The attacker is of the same user, whose connections end one after the other.
        self._fleet.until("an answer", _ANSWER_S, self._is_answered)

    def attack_backlog(self) -> None:
        """Pass descriptors to an agent that stands still, on a connection that it never accepts."""
        attacked = _connected(self._run / "agent.sock")
        with attacked as (connection,), contextlib.suppress(PermissionError):
            _before_the_first_frame(connection, self._lingering)

    def _attack(
        self,
        attack: Callable[[socket.socket, LingeringSockets], None],
        connection: socket.socket,
    ) -> None:
        try:
            # Its close is to be the last one.
            with _stopped(self._agent):
                attack(connection, self._lingering)
            self.passed += 1
        except PermissionError:
            self.refused += 1
        except (BrokenPipeError, ConnectionResetError):  # it was ended for its first bytes
            pass

    def _is_answered(self) -> bool:
        with contextlib.suppress(OSError):
            self._others_are_answered()
            return True
        return False

    def _others_are_answered(self) -> None:
        ask_agent([self._run / "health.sock"], (), _ANSWER_S)


def _open_files(fleet: RealFleet) -> int:
    return len(os.listdir(f"/proc/{fleet.agents[_NODE].process.pid}/fd"))


@pytest.mark.parametrize("older", [False, True], ids=["this-kernel", "before-linux-6.16"])
def test_a_job_loses_no_step_by_descriptors_that_others_pass(older: bool) -> None:
    if not older and not _kernel_has_passrights():
        pytest.skip("this kernel is the older one")
    enter = (sys.executable, str(Path(older_kernel.__file__))) if older else ()
    with (
        LingeringSockets() as lingering,
        running_fleet(_NODE, places={_NODE: Place(enter=enter)}) as fleet,
    ):
        attacker = _Attacker(fleet, lingering)
        launch(fleet, size=1 << 16, step_seconds=0.1, steps=_STEPS)
        fleet.until("steps", PATIENCE_S, lambda: fleet.step() > 5)
        files = _open_files(fleet)
        attacker.attack_everywhere()
        attacker.attack_unread()
        assert (attacker.passed > 0) == older
        assert (attacker.refused > 0) != older
        fleet.until("its descriptors are closed", PATIENCE_S, lambda: _open_files(fleet) <= files)
        fleet.until("the job's end", PATIENCE_S, lambda: ended(fleet))
        (rank,) = said(fleet).values()
        assert rank == {"restored": None, "unsaved": 0, "whole": True, "ended": True}
        log = fleet.agents[_NODE].log.read_text()
        assert ("passed descriptors to the agent, which takes none" in log) == older
        _ends(fleet, attacker)


def _ends(fleet: RealFleet, attacker: _Attacker) -> None:
    """See the agent end at once, although it is told to with descriptors in its backlog."""
    agent = fleet.agents.pop(_NODE).process
    agent.send_signal(signal.SIGSTOP)
    for _ in range(3):
        attacker.attack_backlog()
    agent.send_signal(signal.SIGTERM)
    agent.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    assert agent.wait(60) == 0, f"after {time.monotonic() - begun:.0f} s"
