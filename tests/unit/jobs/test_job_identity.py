"""Which launcher an agent takes for one of the job that it knows, and which is late."""

from dataclasses import replace

import pytest

from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.job.job_table import comes_back
from everstep_agent.jobs.sessions.admission import late_refusal
from everstep_agent.jobs.state.facts import JobFacts, LauncherPlace
from everstep_common.launcher_messages import Join
from everstep_common.version import TRAINER_PROTOCOL

JOIN = Join(
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
FACTS = JobFacts("demo", job_id="demo-20", place=LauncherPlace(process=ProcessIdentity(77, 1)))


@pytest.mark.parametrize("job_id", ["", "demo-20", "demo-121", "other-1", "demo-x"])
def test_a_launcher_that_is_not_known_to_be_older_is_let_in(job_id: str) -> None:
    assert late_refusal(FACTS, replace(JOIN, job_id=job_id)) is None


def test_an_older_launcher_is_told_that_its_job_is_over_where_its_successor_has_been() -> None:
    sentence = late_refusal(FACTS, replace(JOIN, job_id="demo-19"))
    assert sentence is not None
    assert "its job ended while this launcher was away" in sentence
    assert "everstep job demo" in sentence


def test_a_launcher_comes_back_by_its_id_or_as_the_same_process() -> None:
    mine, other = Peer(77, 5), Peer(78, 5)
    assert comes_back(FACTS, replace(JOIN, job_id="demo-20"), other)
    assert comes_back(FACTS, JOIN, mine)
    assert not comes_back(FACTS, JOIN, other)
    assert not comes_back(FACTS, replace(JOIN, job_id="demo-19"), mine)
    assert not comes_back(JobFacts("demo"), JOIN, mine)
