"""Output of a job at the command line, of real agents and launchers: also after its end."""

import json
from collections.abc import Iterator

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
_SCRIPT = """
import os, sys, time
rank = os.environ["RANK"]
print(f"hello of {rank} \\033[31mred\\033[0m a\\bb", flush=True)
for step in range(20):
    print(f"rank {rank} step {step}", flush=True)
    time.sleep(0.5)
print(f"rank {rank} is done", file=sys.stderr, flush=True)
"""


@pytest.fixture
def pair() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        yield fleet


def test_what_ranks_wrote_is_read_while_they_run_and_after_their_end(pair: RealFleet) -> None:
    script = pair.folder / "script.py"
    script.write_text(_SCRIPT)
    pair.launch_script([str(script)], processes=2, nodes="2")
    pair.until("the job", _PATIENCE_S, lambda: pair.everstep("job", JOB).returncode == 0)
    pair.until("lines", _PATIENCE_S, lambda: "step 1" in pair.everstep("logs", JOB).stdout)
    followed = pair.everstep("logs", JOB, "--rank", "3", "--follow")
    assert followed.returncode == 0, followed.stderr
    lines = followed.stdout.splitlines()
    # No line steers the terminal, whatever was in it.
    assert lines[0] == r"hello of 3 red a\x08b"
    assert [line for line in lines if "step" in line] == [f"rank 3 step {n}" for n in range(20)]
    assert lines[-1] == "rank 3 is done"
    pair.until("the end", _PATIENCE_S, lambda: pair.job().state == "ended")
    every = pair.everstep("logs", JOB).stdout
    assert all(f"[{rank}] rank {rank} is done" in every for rank in range(4))
    told = [json.loads(line) for line in pair.everstep("logs", JOB, "--json").stdout.splitlines()]
    assert {one["node"] for one in told} == {"node-1", "node-2"}
    unknown = pair.everstep("logs", JOB, "--rank", "9")
    assert unknown.returncode == 2
    assert "has no rank 9; it has 4" in unknown.stderr


def test_a_node_whose_agent_is_away_is_named(pair: RealFleet) -> None:
    script = pair.folder / "script.py"
    script.write_text(_SCRIPT)
    pair.launch_script([str(script)], nodes="2")
    pair.until("the end", _PATIENCE_S, lambda: pair.job().state == "ended")
    agent = pair.agents.pop("node-2")
    agent.process.kill()
    agent.process.wait(20)
    told = pair.everstep("logs", JOB)
    assert told.returncode == 0
    assert "rank 0 is done" in told.stdout
    assert "node-2" in told.stderr
