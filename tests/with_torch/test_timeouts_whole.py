"""Jobs that end by a collective's timeout, in a real fleet: who did not come is named."""

import contextlib
from collections.abc import Iterator

import pytest

from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
# As often is a job repeated whose ranks the machine was too busy to look at before they ended.
_JOBS_MAX = 3
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


@pytest.fixture(scope="module")
def pair() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        (fleet.folder / "script.py").write_text(_SCRIPT)
        yield fleet


@contextlib.contextmanager
def _hung(pair: RealFleet, how: str, rank: int, processes: int, time: int) -> Iterator[None]:
    """Have a job of its own hang on the nodes."""
    pair.job_name = f"{how.replace(' ', '-')}-{processes}-{time}"
    first = pair.folder / pair.job_name
    command = [str(pair.folder / "script.py"), how, str(first), str(rank)]
    pair.launch_script(command, processes=processes, nodes="2")
    try:
        pair.until("the hang", _PATIENCE_S, first.exists)
        yield
    finally:
        pair.end_launchers()


def _message(fleet: RealFleet) -> str:
    incidents = fleet.sheet(fleet.job_name).incidents
    return "; ".join(f"{one.message}; {one.verdict}" for one in incidents)


@pytest.mark.parametrize(
    ("how", "kind", "rank", "processes"),
    [
        ("sleep", "CPU side", 2, 2),
        # What a rank does instead is judged on data; these tell that it is in whole jobs, too.
        pytest.param("gil", "GIL held", 2, 2, marks=pytest.mark.long),
        pytest.param("stop", "frozen", 2, 2, marks=pytest.mark.long),
        # No rank gives up on its node: the order to stop has its launcher look.
        ("sleep", "CPU side", 1, 1),
        # Those that lost the connection to who gave up end before it.
        ("slow end", "CPU side", 2, 2),
    ],
)
def test_the_rank_that_did_not_come_is_named_and_not_the_ones_that_gave_up(
    pair: RealFleet, how: str, kind: str, rank: int, processes: int
) -> None:
    named = f"Rank {rank} holds the job back: {kind}"
    for time in range(_JOBS_MAX):
        with _hung(pair, how, rank, processes, time):
            pair.until("the verdict", _PATIENCE_S, lambda: _is_over(pair, named))
            if named in _message(pair):
                _is_booked(pair)
                return
    pytest.fail(f"never seen in {_JOBS_MAX} jobs: {named}")


def _is_over(pair: RealFleet, named: str) -> bool:
    return named in _message(pair) or pair.job().state == "ended"


def _is_booked(pair: RealFleet) -> None:
    """Check what is said of the one restart, of which it is known who held the job up."""
    pair.until("steps again", _PATIENCE_S, lambda: pair.job().generation == 2)
    (incident,) = pair.sheet(pair.job_name).incidents
    if incident.cause == "stalled":  # that it hangs was known before a rank gave up
        return
    assert (incident.cause, incident.node) == ("collective", "node-2")
    why = pair.everstep("why", pair.job_name).stdout
    assert "who gave up waiting" in why
    assert "died first" not in why
