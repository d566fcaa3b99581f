"""All ranks of a job wait in reads of one mount that hangs: storage is told, and nothing restarts.

Argument: "direct", where each read is a request of its own, or "cached", where the kernel reads
ahead. Run by its test, in a mount namespace: agents of others are not to see the mount.
"""

import sys
import tempfile
import time
from pathlib import Path

from everstep_cli.client.admin import AdminError, list_nodes
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet
from real.fuse_mount import SOURCE
from real.hanging_storage import NAME, Storage, hanging_storage

_SCRIPT = Path(__file__).with_name("reading_ddp.py")
_NODES = ("node-1", "node-2")
_RANKS_PER_NODE = 2
# What the script has between the reads of two ranks.
_PART_BYTES = 1 << 18
_PATIENCE_S = 120.0
# What is restarted for a hang is so after this; storage is not.
_HANG_PATIENCE_S = 5.0
_BEYOND_PATIENCE_S = 12.0
# Agents know by then how long nothing may happen, also that of the node whose ranks print no step.
_LEARNED_S = 30.0
_STEPS_AFTER = 20


def play(direct: bool, mount: Path) -> None:
    """Let a job train, hang its storage, see what is told, and let it answer again."""
    core = (f"hang_patience_s = {_HANG_PATIENCE_S}",)
    with (
        hanging_storage(mount, direct=direct) as storage,
        running_fleet(*_NODES, core_lines=core) as fleet,
    ):
        try:
            _hang_and_go_on(fleet, storage, mount)
        finally:
            # A process that waits for it ends only when it answers.
            storage.go_on()


def _hang_and_go_on(fleet: RealFleet, storage: Storage, mount: Path) -> None:
    for name in _NODES:
        _launch(fleet, name, mount / NAME)
    fleet.until("steps", _PATIENCE_S, lambda: fleet.job().has_step)
    _wait(fleet, _LEARNED_S)
    storage.hang_between_steps(len(_NODES) * _RANKS_PER_NODE * _PART_BYTES)
    begun_s = time.monotonic()
    fleet.until("reads", _PATIENCE_S, lambda: storage.held >= len(_NODES) * _RANKS_PER_NODE)
    fleet.until("a verdict", _PATIENCE_S, lambda: _hang(fleet).kind == "storage")
    print(f"told after {time.monotonic() - begun_s:.1f} s", flush=True)
    _wait(fleet, _BEYOND_PATIENCE_S)
    told = _hang(fleet)
    assert sorted(one.rank for one in told.culprits) == [0, 1, 2, 3], told
    said = fleet.everstep("why", JOB).stdout
    mounted = f"fuse.filer {SOURCE} at {mount}"
    for words in (f'"{mount / NAME}"', mounted, "in the kernel in request_wait_answer"):
        assert words in said, said
    # The agents find that the mount hangs, and nobody isolates a node for it.
    assert [list(one.claims) for one in list_nodes(fleet.admin).nodes] == [[], []]
    assert (fleet.job().state, fleet.job().generation) == ("stalled", 1)

    reached = fleet.job().step
    storage.go_on()
    fleet.until("new steps", _PATIENCE_S, lambda: fleet.job().step > reached + _STEPS_AFTER)
    assert (fleet.job().state, fleet.job().generation) == ("running", 1)
    print(said)


def _launch(fleet: RealFleet, name: str, samples: Path) -> None:
    options = ("--job", JOB, "--nnodes", str(len(_NODES)), "--nproc-per-node")
    own = ("--token-file", str(fleet.folder / "token"))
    socket = ("--socket", str(fleet.folder / name / "run" / "agent.sock"))
    script = (sys.executable, str(_SCRIPT), str(samples), "1000000")
    fleet.start_launcher(name, *options, str(_RANKS_PER_NODE), *own, *socket, "--", *script)


def _hang(fleet: RealFleet) -> admin_pb2.HangLine:
    """Return what is known of who holds the job back."""
    try:
        return fleet.sheet(JOB).hang
    except AdminError:
        return admin_pb2.HangLine()


def _wait(fleet: RealFleet, seconds: float) -> None:
    ends_s = time.monotonic() + seconds
    fleet.until("a while", seconds + _PATIENCE_S, lambda: time.monotonic() > ends_s)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="esmount") as made:
        play(sys.argv[1] == "direct", Path(made))
