"""Planned work benchmark: its cost at each event, in 12,500 nodes with 1,000 jobs of 12 nodes.

Beside each event stands what it would cost to look at all jobs after it, as for a change of the
settings: that is the limit that an event must stay far below which concerns one job, or none.
"""

import time
from collections.abc import Callable, Iterator

from scale_fleet import Bench
from table import Row, arguments, row, show

from everstep_common import reports
from everstep_common.judging.findings import Finding, Severity
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.planned import restarts
from everstep_controller.core.turn import Reconciliation

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
        order = f"{name}/check/{bench.core.state.nodes[name].health.checks}"
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


def of_events(bench: Bench, jobs: int, limit: Row, repeats: int) -> Iterator[Row]:
    """Yield what events cost that concern one job, one node, or nobody."""
    kinds: dict[str, Callable[[int], events.Event]] = {
        "PeerReported": lambda n: events.PeerReported("n0", f"n{n}", silent=False),
        "FindingRaised": lambda n: events.Reported(
            bench.origin(f"n{n}"), 0, reports.FindingRaised(_NOISE)
        ),
        "StepRecoverable": lambda n: events.StepRecoverable(f"job-{n % jobs}", 1, n),
        "RankExited": lambda n: events.Reported(
            bench.origin(f"n{n * _MEMBERS}"),
            bench.now_ns,
            reports.RankExited(generation=1, rank=0, exit_code=1, signal=0, last_line="CUDA error"),
            f"job-{n}",
        ),
    }
    for name, made in kinds.items():
        spent = [bench.take(made(number)) * 1e6 for number in range(20 * repeats)]
        yield row(name, spent, "µs", limit)


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--jobs", type=int, default=1000)
    given = parser.parse_args()
    bench = Bench([f"n{number}" for number in range(given.nodes)], [])
    fill(bench, given.jobs)
    spent = []
    for _ in range(given.repeats):
        began = time.perf_counter()
        turn = Reconciliation(bench.core.state, bench.now_ns)
        restarts.reconcile_jobs(turn, bench.core.state.jobs.keys())
        spent.append((time.perf_counter() - began) * 1e6)
    limit = row(f"a look at all {given.jobs} jobs", spent, "µs")
    show([limit, *of_events(bench, given.jobs, limit, given.repeats)], given.json)


if __name__ == "__main__":
    main()
