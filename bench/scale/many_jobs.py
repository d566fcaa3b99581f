"""Planned work benchmark: its cost at each event, in 12,500 nodes with 1,000 jobs of 12 nodes.

Beside each event stands what it would cost to look at all jobs after it, as for a change of the
settings: that is the limit that an event must stay far below which concerns one job, or none.
"""

from scale.fleet import Bench

from everstep_common import reports
from everstep_common.judging.findings import Finding, Severity
from everstep_common.reports import Phase
from everstep_controller.core import events

_MEMBERS = 12
_NOISE = Finding(component="disk", condition="Noise", severity=Severity.INFO, message="noise")


def fill(bench: Bench, jobs: int) -> None:
    """Let all nodes connect, and start the jobs."""
    take = bench.take
    take(events.ControllerStarted("bench"))
    for name in bench.nodes:
        hello = events.NodeConnected(
            node=name,
            boot_id="boot",
            agent_version="1",
            outbox=f"outbox-{name}",
            highest_term=0,
            host="127.0.0.1",
            domain=f"rack-{int(name[1:]) // 32}",
            bulk_address="127.0.0.1:7436",
            liveness_address="127.0.0.1:7437",
        )
        take(hello)
        order = f"{name}/check/{bench.core.state.nodes[name].checks}"
        take(events.Reported(bench.origin(name), 0, reports.CheckFinished(order, True, "fine")))
    for number in range(jobs):
        start(bench, f"job-{number}", bench.nodes[number * _MEMBERS :][:_MEMBERS])


def start(bench: Bench, job: str, nodes: list[str]) -> None:
    """Start one job, to where it trains."""
    for name in nodes:
        joined = events.Reported(
            bench.origin(name),
            0,
            reports.LauncherJoined(
                uid=0,
                token_sha256="token",
                nodes_min=len(nodes),
                nodes_max=len(nodes),
                processes_per_node=8,
                reform=True,
                restarts_max=3,
                free_port=29500,
            ),
            job,
        )
        bench.take(joined)
    bench.take(events.RecoveryStepChosen(job=job, generation=1, step=None))
    for name in nodes:
        done = events.Reported(
            bench.origin(name), bench.now_ns, reports.PhaseReached(1, Phase.RESTORED), job
        )
        bench.take(done)
