"""Jobs that end by a collective's timeout, in a real fleet: who did not come is named."""

import contextlib
from collections.abc import Iterator

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
# Rank 2 holds the others back in the first generation, in the way that the argument says.
_SCRIPT = """
import ctypes, datetime, os, pathlib, signal, sys, time
import torch
import torch.distributed as dist

def hold_back(how):
    if how == "sleep":
        time.sleep(600)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(600)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "late":
        time.sleep(5.4)

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
    if rank == 2:
        first.touch()
        hold_back(sys.argv[1])
    dist.all_reduce(total)
"""


@contextlib.contextmanager
def _hung(how: str) -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        first = fleet.folder / "first"
        fleet.launch_script([str(script), how, str(first)], processes=2, nodes="2")
        fleet.until("the hang", _PATIENCE_S, first.exists)
        yield fleet


def _message(fleet: RealFleet) -> str:
    return "; ".join(one.message for one in fleet.admin.job(JOB).incidents)


@pytest.mark.parametrize(
    ("how", "kind"),
    [("sleep", "CPU side"), ("gil", "GIL held"), ("stop", "frozen"), ("late", "CPU side")],
)
def test_the_rank_that_did_not_come_is_named_and_not_the_ones_that_gave_up(
    how: str, kind: str
) -> None:
    with _hung(how) as fleet:
        named = f"Rank 2 holds the job back: {kind}"
        fleet.until("the verdict", _PATIENCE_S, lambda: named in _message(fleet))
        fleet.until("steps again", _PATIENCE_S, lambda: fleet.job().generation == 2)
        (incident,) = fleet.admin.job(JOB).incidents
        assert (incident.cause, incident.node) == ("collective", "node-2")
        print(incident)
        print(fleet.everstep("why", JOB).stdout)
        print(fleet.everstep("events", "--subject", JOB).stdout)
