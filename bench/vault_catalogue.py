"""Catalogue benchmark: what a job of 2,048 nodes x 8 ranks costs the controller, from bytes on.

Each node holds the copies of 8 own ranks and 8 replicas, of 3 steps. A real agent of such a job
gathers what is verified within 250 ms and tells what is new and gone since its last report: two
agents of 8 ranks each on two cores were seen to send 1 report a step with 1 MiB a rank, 2 with 16
MiB and 3 with 64 MiB, whose hashing and replication takes a second there. So the real case is 4
reports a step and node, four copies in each; beside it stand the best one (all copies in one) and
the worst (each copy in one of its own). The limits are what nobody can do without: reading the
protobuf messages, and putting as many values into plain dicts as there are new copies. Times are
CPU times of the one thread that does it.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence

from table import Row, arguments, row, show
from vault_commit import JOB, RANKS, STEPS, TOGETHER, Steps, moments, report

from everstep_agent.vault_reports import VaultReports
from everstep_common.preload import Preload
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.events import Event
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Lineage,
    Members,
)
from everstep_controller.core.model.node import NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.model.state import State, add_job
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.messages import Directive
from everstep_controller.core.vault.recovery_step import Question, choose_step, group_sources
from everstep_controller.core.vault.snapshot_table import snapshot_steps, snapshot_table
from everstep_controller.runtime.vault_service import VaultService
from everstep_proto.generated import fleet_pb2

# How often each rank commits.
JOB_ID = f"{JOB}-1"
COMMIT_S = 10.0


class Port:
    """VaultPort for the benchmark: sends nothing, and has a clock."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.directives = 0

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        """See VaultPort."""
        return True

    def direct(self, node: str, directive: Directive) -> bool:
        """See VaultPort."""
        self.directives += 1
        return True

    def post(self, event: Event) -> None:
        """See VaultPort."""

    def announce(self, subject: str, reason: str, message: str) -> None:
        """See VaultPort."""

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """See VaultPort."""
        self.waiting.append(callback)

    def now_ns(self) -> int:
        """See VaultPort."""
        return 0


class Bench:
    """A vault service with a running job, told by bytes as from the wire."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"n{number:04}" for number in range(nodes)]
        self.state = State()
        for name in self.names:
            self.state.nodes[name] = NodeRecord(
                name,
                NodeState.HEALTHY,
                liveness=NodeLiveness(connected=True),
                spec=NodeSpec(bulk_address=f"{name}:7436"),
            )
        point = BranchPoint(1, None, nodes * RANKS)
        job = JobRecord(
            JOB_ID,
            JOB,
            JobSpec(
                uid=0, token_sha256="", nodes_min=nodes, nodes_max=nodes, processes_per_node=RANKS
            ),
            ledger=Ledger(0),
            state=JobState.RUNNING,
            generation=Generation(1, Members(self.names)),
            lineage=Lineage([point]),
        )
        add_job(self.state, job)
        self.state.names[JOB] = JOB_ID
        self.job, self.port = job, Port()
        self.service = VaultService(lambda: self.state, self.port)
        # What each agent said on its stream, and what the controller took from it.
        self.agents = [VaultReports() for _ in self.names]
        self.told: dict[str, dict[bytes, Copy]] = {}
        for agent in self.agents:
            agent.begin()

    def said(self, held: Sequence[tuple[Steps, Steps]]) -> list[list[bytes]]:
        """Return what all agents send, moment by moment."""
        phases: list[list[bytes]] = []
        for own, kept in held:
            phases.append([])
            for index, agent in enumerate(self.agents):
                agent.put(report(len(self.names), index, own, kept))
                if sent := agent.pop_next():
                    phases[-1].append(sent.SerializeToString())
        return phases

    def tell(self, phase: Sequence[bytes]) -> float:
        """Hand over one report of every node; return the seconds that it took."""
        began = time.thread_time()
        for name, body in zip(self.names, phase, strict=True):
            wire = fleet_pb2.VaultReport.FromString(body)
            if wire.change:
                told = changed(name, wire, self.told[name])
            else:
                told = vault_report(name, wire, self.service.held(JOB, name))
                self.told[name] = told.copies
            self.service.report(JOB, name, told)
        return time.thread_time() - began

    def refresh(self) -> float:
        """Let the service direct all members; return the seconds that it took."""
        began = time.thread_time()
        while self.port.waiting:
            self.port.waiting.pop()()
        return time.thread_time() - began


def decoded(phases: Sequence[Sequence[bytes]]) -> float:
    """Return the seconds in which the messages are read, and nothing else."""
    began = time.thread_time()
    for phase in phases:
        for body in phase:
            fleet_pb2.VaultReport.FromString(body)
    return time.thread_time() - began


def inserted(count: int) -> float:
    """Return the seconds for as many plain dict inserts and deletes as copies come and go."""
    keys = [(1, rank, index) for index in range(2) for rank in range(count // 2)]
    began = time.thread_time()
    table: dict[tuple[int, int, int], int] = {}
    for key in keys:
        table[key] = 1
    for key in keys:
        del table[key]
    return time.thread_time() - began


def commit_rows(bench: Bench, repeats: int, together: int) -> Iterator[Row]:
    """Yield what one commit of all ranks costs from the wire to the directives."""
    nodes = len(bench.names)
    reads, dicts, took, directs = [], [], [], []
    often = ""
    first = [range(STEPS)] * RANKS
    bench.tell(bench.said([(first, first)])[0])
    bench.refresh()
    for step in range(STEPS, STEPS + repeats):
        phases = bench.said(moments(step, together))
        often = f"{len(phases)} x {nodes} reports"
        gc.collect()
        reads.append(decoded(phases) * 1e3)
        dicts.append(inserted(2 * nodes * RANKS) * 1e3)
        spent, directed = 0.0, 0.0
        for phase in phases:
            spent += bench.tell(phase)
            directed += bench.refresh()
        took.append(spent * 1e3)
        directs.append(directed * 1e3)
    limit = row(f"limit: read {often}", reads, "ms")
    yield limit
    yield row("limit: a dict insert and delete for each new copy", dicts, "ms", limit)
    yield row(f"{often} of one commit of {nodes * RANKS} ranks", took, "ms", limit)
    yield row("what is recoverable now, and new directives", directs, "ms", limit)
    shares = [(a + b) / COMMIT_S / 10 for a, b in zip(took, directs, strict=True)]
    yield row(f"{often}: of one core, at a commit every {COMMIT_S:.0f} s", shares, "%")


def question_rows(bench: Bench, repeats: int) -> Iterator[Row]:
    """Yield what single questions cost over all copies."""
    (known,), job = bench.service._lineages.values(), bench.job
    catalogue = known.snapshots.holdings.catalogue
    world = job.world_size
    layouts = catalogue.layouts(1, world)
    copies = list(catalogue.copies())

    def loop() -> None:
        for _ in copies:
            pass

    bare = row(f"limit: a loop over {len(copies)} copies", timed(loop, repeats), "ms")
    yield bare
    learned = frozenset(layouts)
    asked: dict[str, Callable[[], object]] = {
        "the recoverable step": lambda: catalogue.recoverable(1, job.generation.members, world),
        "the recoverable step, by parts": lambda: catalogue.recoverable(
            1, job.generation.members, world, learned
        ),
        "the parts of the state": lambda: catalogue.layouts(1, world),
    }
    for name, ask in asked.items():
        yield row(name, timed(ask, repeats), "ms", bare)
    reachable = {name: f"{name}:7436" for name in bench.names}
    question = Question([BranchPoint(1, None, world, layouts)], reachable, expected=True)
    choice = choose_step(catalogue, question)
    yield row(
        "a choice with all sources", timed(lambda: choose_step(catalogue, question), repeats), "ms"
    )

    yield row(
        "the numbers of a job's snapshots (/metrics)",
        timed(lambda: bench.service.numbers(JOB), repeats),
        "ms",
        bare,
    )
    view = bench.service.view(JOB)
    assert view is not None
    lines = tuple(snapshot_steps(view))
    longest = [max(turns(snapshot_steps(view))) for _ in range(repeats)]
    yield row("`everstep snapshots`: the longest turn of the loop", longest, "ms", bare)
    last = timed(lambda: snapshot_table(view, lines), repeats)
    yield row("`everstep snapshots`: its last turn", last, "ms", bare)

    job.lineage.restored, job.generation.sources = (1, choice.step or 0), choice.sources

    def told() -> None:
        told_of = group_sources(job)
        for name in bench.names:
            told_of.of(name)

    yield row("which sources each member is told", timed(told, repeats), "ms", bare)


def turns(lines: Iterator[object]) -> list[float]:
    """Return how many milliseconds each item took to make."""
    found = []
    began = time.thread_time()
    for _ in lines:
        found.append((time.thread_time() - began) * 1e3)
        began = time.thread_time()
    return found


def timed(work: Callable[[], object], repeats: int) -> list[float]:
    """Return how many milliseconds each repeat took."""
    found = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        found.append((time.thread_time() - began) * 1e3)
    return found


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--nodes", type=int, default=2048)
    given = parser.parse_args()
    rows: list[Row] = []
    bench = Bench(given.nodes)
    for together in TOGETHER:
        bench = Bench(given.nodes)
        rows += commit_rows(bench, given.repeats, together)
    rows += question_rows(bench, given.repeats)
    show(rows, given.json)


if __name__ == "__main__":
    main()
