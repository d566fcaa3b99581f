"""Jobs that end by a collective's timeout, in a real fleet: who did not come is named."""

import contextlib
from collections.abc import Iterator

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
# One rank holds the others back in the first generation; the arguments say which, and how.
_SCRIPT = """
import atexit, ctypes, datetime, os, pathlib, signal, sys, time
import torch
import torch.distributed as dist

def hold_back(how):
    if how in ("sleep", "slow end"):
        time.sleep(600)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(600)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
first = pathlib.Path(sys.argv[2])
total = torch.ones(4)
rank = int(os.environ["RANK"])
again = first.exists()
for step in range(200 if again else 9):
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step}", flush=True)
    time.sleep(0.05)
if not again:
    if rank == int(sys.argv[3]):
        first.touch()
        hold_back(sys.argv[1])
    if sys.argv[1] == "slow end":
        if rank == 3:  # it gives up first, and its interpreter takes its time to end
            atexit.register(time.sleep, 2)
        else:
            time.sleep(1)
    dist.all_reduce(total)
"""


@contextlib.contextmanager
def _hung(how: str, rank: int, processes: int) -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        first = fleet.folder / "first"
        command = [str(script), how, str(first), str(rank)]
        fleet.launch_script(command, processes=processes, nodes="2")
        fleet.until("the hang", _PATIENCE_S, first.exists)
        yield fleet


def _message(fleet: RealFleet) -> str:
    return "; ".join(f"{one.message}; {one.verdict}" for one in fleet.sheet(JOB).incidents)


@pytest.mark.parametrize(
    ("how", "kind", "rank", "processes"),
    [
        ("sleep", "CPU side", 2, 2),
        ("gil", "GIL held", 2, 2),
        ("stop", "frozen", 2, 2),
        # No rank gives up on its node: the order to stop has its launcher look.
        ("sleep", "CPU side", 1, 1),
        # Those that lost the connection to who gave up end before it.
        ("slow end", "CPU side", 2, 2),
    ],
)
def test_the_rank_that_did_not_come_is_named_and_not_the_ones_that_gave_up(
    how: str, kind: str, rank: int, processes: int
) -> None:
    with _hung(how, rank, processes) as fleet:
        named = f"Rank {rank} holds the job back: {kind}"
        fleet.until("the verdict", _PATIENCE_S, lambda: named in _message(fleet))
        fleet.until("steps again", _PATIENCE_S, lambda: fleet.job().generation == 2)
        (incident,) = fleet.sheet(JOB).incidents
        if incident.cause == "stalled":  # that it hangs was known before a rank gave up
            return
        assert (incident.cause, incident.node) == ("collective", "node-2")
        why = fleet.everstep("why", JOB).stdout
        assert "who gave up waiting" in why
        assert "died first" not in why
