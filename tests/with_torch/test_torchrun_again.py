"""A torchrun that becomes a new one: how, and what it heard in between."""

import os
import socket
import sys

import pytest

from everstep.integrations.torchrun.process_restart import Again, Kept
from everstep.launch.free_port import FreePort
from everstep_common.frames import encode
from everstep_common.launcher_messages import End, Joined, Notice

_VARIABLE = "EVERSTEP_TORCHRUN_KEPT"


def test_a_program_that_uses_torchrun_as_a_library_cannot_be_begun_anew() -> None:
    assert Again.of((), ["python", "own.py"], {}) is None


def test_it_begins_with_the_same_command_line_and_the_variables_of_the_start() -> None:
    environ = {"PATH": "/bin"}
    line = ("--nnodes", "2", "train.py")
    again = Again.of(line, ["python", "-m", "torch.distributed.run", *line], environ)
    environ["EVERSTEP_GENERATION"] = "1"
    assert again
    assert again.command == (sys.executable, "-m", "torch.distributed.run", *line)
    assert again.environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ((), None),
        ((Notice("waits"), Joined("node-1")), None),
        ((Notice("waits"), End(False, "cancelled")), End(False, "cancelled")),
    ],
)
def test_an_end_that_was_told_meanwhile_is_heard(said: tuple[object, ...], end: End | None) -> None:
    agent, kept = socket.socketpair()
    with agent:
        for message in said:
            agent.sendall(encode(message))
        agent.shutdown(socket.SHUT_WR)  # as it does when it hears that the other side hangs up
        assert Kept(kept.detach()).told_meanwhile() == end
        agent.settimeout(20)
        assert agent.recv(1) == b"", "the connection of the torchrun before stays open"


def test_what_is_left_is_found_once_and_no_rank_hears_of_it() -> None:
    environ = {"PATH": "/bin", **Kept(5, 7).environ()}
    assert Kept.of(environ) == Kept(5, 7)
    assert environ == {"PATH": "/bin"}
    assert Kept.of(environ) == Kept()


@pytest.mark.parametrize("value", ["", "none", "1", "1,2,3"])
def test_what_was_not_left_by_a_torchrun_is_nothing(value: str) -> None:
    assert Kept.of({_VARIABLE: value}) == Kept()


@pytest.mark.parametrize("descriptor", [-1, 2**20])
def test_what_is_no_connection_and_no_port_is_nothing(descriptor: int) -> None:
    kept = Kept(descriptor, descriptor)
    assert kept.told_meanwhile() is None
    assert kept.held_port() is None


def test_the_port_that_the_plan_has_told_stays_held() -> None:
    before = FreePort()
    left = os.dup(before.descriptor)
    os.set_inheritable(left, True)
    after = Kept(-1, left).held_port()
    before.release()
    assert after
    assert after.number == before.number
    assert not os.get_inheritable(after.descriptor), "the ranks keep the port as well"
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", after.number))
    after.release()
