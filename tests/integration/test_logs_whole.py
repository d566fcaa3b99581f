"""Output of a job at the command line, of real agents and launchers: also after its end."""

import http.client
import json
from collections.abc import Iterator

import pytest

from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import COOKIE
from everstep_proto.tls import Role
from fakes.page_server import Answer, ask, served_page
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
    _look_by_the_page(pair)


def _look_by_the_page(pair: RealFleet) -> None:
    """See that the page shows it to an operator alone, and that the events say who has looked."""
    with served_page(Doors(listen="127.0.0.1:0"), pair.admin) as page:

        def look(role: Role, path: str) -> Answer:
            session = page.access.open_session(page.access.new_token(role))
            connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
            return ask(connection, path, {"Cookie": f"{COOKIE}={session}"})

        shown = look(Role.OPERATOR, f"/output/{JOB}?rank=2")
        assert shown.code == 200
        assert "[2] rank 2 is done" in shown.text
        for path in (f"/output/{JOB}", f"/stacks/{JOB}"):
            refused = look(Role.VIEWER, path)
            assert refused.code == 403
            assert f"{JOB} is another user" in refused.text
        ended = look(Role.OPERATOR, f"/stacks/{JOB}")
        assert f"{JOB} has no ranks now" in ended.text
    told = pair.everstep("events", "--subject", JOB).stdout
    assert f"somebody at the page (operator) looked at the output of {JOB}" in told
    assert (
        f"an operator of the controller's machine (operator) looked at the output of {JOB}" in told
    )
    assert "(viewer) looked" not in told


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
