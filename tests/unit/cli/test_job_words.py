"""Jobs in words: what was asked for, and what an incident cost."""

import pytest
from rich.console import Console

from everstep_cli.views.jobs import COST_WORDS, job_sheet
from everstep_controller.core.accounting.categories import PLANNED_WORK, Category, Group
from everstep_proto.generated import admin_pb2


@pytest.mark.parametrize(
    ("least", "most", "ranks", "words"),
    [
        (1, 1, 1, "1 node with 1 rank"),
        (1, 1, 8, "1 node with 8 ranks"),
        (4, 4, 8, "4 nodes with 8 ranks each"),
        (3, 4, 1, "3 to 4 nodes with 1 rank each"),
    ],
)
def test_what_a_job_asked_for_is_told_in_the_right_number(
    least: int, most: int, ranks: int, words: str
) -> None:
    job = admin_pb2.JobDetail(nodes_min=least, nodes_max=most, processes_per_node=ranks)
    assert _fact(job, "asked for") == words


def _fact(job: admin_pb2.JobDetail, name: str) -> str:
    console = Console(width=300)
    with console.capture() as drawn:
        console.print(*job_sheet(job, 0))
    (line,) = (one for one in drawn.get().splitlines() if one.startswith(f"{name} "))
    return line.removeprefix(name).strip()


@pytest.mark.parametrize(
    ("nodes", "each", "words"),
    [
        (1, 1, "0 on n0; "),
        (3, 1, "0 on n0, 1 on n1, 2 on n2; "),
        (2, 8, "0-7 on n0, 8-15 on n1; "),
        (8, 2, "14-15 on n7; "),
    ],
)
def test_the_ranks_of_a_few_nodes_are_told_where_they_are(
    nodes: int, each: int, words: str
) -> None:
    job = admin_pb2.JobDetail(processes_per_node=each)
    job.summary.job, job.summary.state = "demo", "running"
    job.summary.members[:] = [f"n{place}" for place in range(nodes)]
    shown = _fact(job, "ranks")
    assert words in shown
    assert shown.endswith("; 'everstep job demo ranks' shows the process and devices of each")
    job.summary.members[:] = [f"n{place}" for place in range(9)]
    assert _fact(job, "ranks").startswith("'everstep job demo ranks' shows the node, process and")


def test_all_that_an_incident_can_cost_has_words() -> None:
    costs = {category.value for category in Category if category.group is Group.INCIDENT}
    costs |= {category.value for category in PLANNED_WORK.values()}
    assert costs == set(COST_WORDS)
    assert len(set(COST_WORDS.values())) == len(COST_WORDS)
