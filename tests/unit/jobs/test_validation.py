"""Anybody may say anything: what cannot be worked with is said so, and goes no further."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from everstep_agent.ipc.processes import descends
from everstep_common import frames
from everstep_common.frames import MessageError
from everstep_common.launcher_messages import FROM_LAUNCHER, Join, StepSeen
from everstep_common.rank_messages import FROM_TRAINER, Begin, Progress, Ready, RollbackAsked
from everstep_common.reports import GenerationStopped, RankExited, Storage
from everstep_common.version import TRAINER_PROTOCOL

_JOIN = Join(
    protocol=TRAINER_PROTOCOL,
    version="0.1.0",
    job="demo",
    token="secret",
    nodes_min=1,
    nodes_max=1,
    processes_per_node=1,
    reform=True,
    restarts_max=1,
    free_port=1,
)
_EXITED = RankExited(generation=1, rank=0, exit_code=-9, signal=9, at_boot_ns=5, last_line="")


_KNOWN = {kind.__name__: kind for kind in (*FROM_LAUNCHER, *FROM_TRAINER)}


def _heard(message: object) -> object:
    """Return a message as the agent hears it. Raises MessageError."""
    return frames.decode(frames.encode(message)[frames.HEADER_BYTES :], _KNOWN)


@pytest.mark.parametrize("name", ["demo", "a", "llama-3.1_70B", "x" * 200])
def test_a_name_that_works_everywhere_is_a_name(name: str) -> None:
    assert _heard(replace(_JOIN, job=name)) == replace(_JOIN, job=name)


@pytest.mark.parametrize("name", ["", "x" * 201, "a b", "a\0b", "a\n", "../a", ".a", "día", "a/b"])
def test_a_name_that_some_part_cannot_use_is_none(name: str) -> None:
    with pytest.raises(MessageError, match="--job"):
        _heard(replace(_JOIN, job=name))


@pytest.mark.parametrize("message", [_JOIN, _EXITED, Begin(0), Ready(1), Progress(1, 2, 3)])
def test_what_a_job_says_in_its_life_passes(message: object) -> None:
    assert _heard(message) == message


@pytest.mark.parametrize(
    "message",
    [
        replace(_JOIN, nodes_min=-1),
        replace(_JOIN, nodes_max=2**31),
        replace(_JOIN, processes_per_node=2**63 - 1),
        replace(_JOIN, restarts_max=-1),
        replace(_JOIN, free_port=65536),
        replace(_JOIN, running_generation=2**63 - 1),
        replace(_JOIN, job_id="demo"),
        replace(_JOIN, job_id="-1"),
        replace(_JOIN, job_id=f"demo-{10**18}"),
        replace(_EXITED, exit_code=2**31),
        replace(_EXITED, rank=-1),
        replace(_EXITED, at_boot_ns=-1),
        GenerationStopped(1, -1, 0),
        Begin(-1),
        Begin(10**18),
    ],
)
def test_a_number_that_travels_nowhere_is_named(message: object) -> None:
    with pytest.raises(MessageError, match=f"^{type(message).__name__}.[a-z_]+: "):
        _heard(message)


def test_the_id_of_a_job_is_its_name_and_a_number() -> None:
    assert _heard(join := replace(_JOIN, job_id=f"demo-{9 * 10**17}")) == join


@pytest.mark.parametrize(
    "message",
    [
        replace(_JOIN, job_id=f"demo-{10**18 - 1}"),
        replace(_JOIN, running_generation=10**18 - 1),
        Progress(10**18 - 1, 2, 3),
        StepSeen(1, 10**18 - 1, 2),
        RollbackAsked(step=10**18 - 1, reason="bad"),
    ],
)
def test_a_number_from_which_nobody_could_count_on_is_refused(message: object) -> None:
    with pytest.raises(MessageError):
        _heard(message)


def test_a_launcher_whose_job_has_a_size_may_join() -> None:
    for join in (_JOIN, replace(_JOIN, nodes_max=4, replica_nodes=1)):
        assert _heard(join) == join
    assert _heard(replace(_JOIN, nodes_min=2, nodes_max=4, replica_nodes=2))
    assert _heard(replace(_JOIN, storage=Storage(path="/x")))
    assert _heard(replace(_JOIN, snapshot_every_min=5))
    # Sixteen times the largest job that is known, and torchrun's way to say "as many as there are".
    assert _heard(replace(_JOIN, nodes_max=12_500, processes_per_node=16))
    assert _heard(replace(_JOIN, nodes_max=100_000, processes_per_node=2))


@pytest.mark.parametrize(
    ("join", "option"),
    [
        (replace(_JOIN, processes_per_node=0), "--nproc-per-node 0"),
        (replace(_JOIN, nodes_min=0), "--nnodes 0"),
        (replace(_JOIN, nodes_min=2), "--nnodes 2:1"),
        (replace(_JOIN, nodes_max=4, replica_nodes=2), "--nodes-per-replica 2"),
        (replace(_JOIN, nodes_min=2, nodes_max=3, replica_nodes=2), "--nodes-per-replica 2"),
        (replace(_JOIN, storage=Storage(path="")), "--persist"),
        (replace(_JOIN, processes_per_node=4097), "--nproc-per-node 4097: expected from 1 to 4096"),
        (replace(_JOIN, nodes_max=100_000, processes_per_node=16), "at most 200000 ranks in all"),
        (replace(_JOIN, snapshot_every_min=5, snapshot_every_max=2), "--snapshot-every 5:2"),
        (replace(_JOIN, token="a\0b"), "--token-file"),
    ],
)
def test_a_launcher_hears_which_option_to_change_where_the_controller_could_not_use_it(
    join: Join, option: str
) -> None:
    with pytest.raises(MessageError, match=option):
        _heard(join)


def test_a_process_belongs_to_whoever_started_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert descends(child.pid, os.getpid(), os.getuid())
        assert descends(os.getpid(), os.getpid(), os.getuid())
        assert not descends(os.getpid(), child.pid, os.getuid())
        assert not descends(child.pid, os.getpid(), os.getuid() + 1)
        assert not descends(1, child.pid, os.getuid())
    finally:
        child.communicate()
