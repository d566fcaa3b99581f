"""A launcher that starts before its agent."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from everstep_common.launcher_messages import End, Join, Start, Started
from fakes.readable import becomes_readable
from integration.trainer_agent import TrainerAgent, Vault
from integration.trainer_job import environment

_WAITS = b"--agent-wait 0 does not wait\n"


@contextlib.contextmanager
def launcher(folder: Path, wait_s: float) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a launcher whose agent is not there."""
    line = ["run", "--socket", str(folder / "agent.sock"), "--job", "early"]
    line += ["--agent-wait", str(wait_s), "--standby", "none", "--", "true"]
    process = subprocess.Popen(
        [sys.executable, "-m", "everstep.entry", *line],
        env=environment(EVERSTEP_JOB_TOKEN="secret"),
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[bytes]", wanted: bytes) -> bytes:
    """Return what it has said when it has said this."""
    assert process.stderr is not None
    text = b""
    while wanted not in text:
        ready = becomes_readable(process.stderr, 30.0)
        assert ready, text
        more = os.read(process.stderr.fileno(), 4096)
        assert more, text
        text += more
    return text


def test_a_launcher_that_is_there_before_its_agent_waits_for_it_and_joins(tmp_path: Path) -> None:
    with launcher(tmp_path, 60) as process:
        assert b"everstep-agent of this node (the folder of its socket," in said(process, _WAITS)
        with contextlib.closing(Vault()) as vault:
            agent = TrainerAgent(tmp_path / "agent.sock", vault)
            with contextlib.closing(agent):
                join = agent.expect(Join)
                assert isinstance(join, Join)
                agent.tell_launcher(start(join.free_port))
                agent.expect(Started)
                agent.tell_launcher(End(succeeded=True, reason="a test"))
                _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors


def test_a_socket_that_nobody_listens_at_any_more_is_waited_for_as_well(tmp_path: Path) -> None:
    with contextlib.closing(Vault()) as vault:
        TrainerAgent(tmp_path / "agent.sock", vault).close()
    with launcher(tmp_path, 0.2) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 75  # EX_TEMPFAIL: it may come yet
    assert b"agent.sock after 0.2 s (" in errors
    assert errors.count(b"\n") == 2


def test_who_does_not_wait_is_told_the_same(tmp_path: Path) -> None:
    with launcher(tmp_path, 0) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 75
    assert errors.count(b"\n") == 1


def test_where_no_agent_is_to_be_expected_trying_again_helps_nobody(tmp_path: Path) -> None:
    with launcher(tmp_path / "nowhere", 60) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"everstep run --standalone, which needs none" in errors


def test_nobody_who_waits_for_an_agent_is_deaf_to_ctrl_c(tmp_path: Path) -> None:
    with launcher(tmp_path, 600) as process:
        said(process, _WAITS)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"everstep: job early: left on SIGINT\n")


def start(port: int) -> Start:
    """Return the order to start one rank."""
    return Start(
        generation=1,
        node_rank=0,
        node_count=1,
        first_rank=0,
        processes=1,
        world_size=1,
        master_address="127.0.0.1",
        master_port=port,
        restore_step=None,
        reason="a test",
    )
