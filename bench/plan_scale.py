"""Planning benchmark: cost of each event in a fleet of 2,000 nodes with one job of 1,000 x 8.

The limit of each question is a plain loop over the same values: over all copies for the catalogue
(what reading them once costs), over the nodes or events for core and fold. Last comes a whole plan
for 2,048 x 8 (plan_whole.py), in processor time, for nothing in it waits.
"""

import time
from collections.abc import Callable, Iterator

from plan_whole import whole_rows
from scale_fleet import JOB, Bench, Recorder, copies, form
from table import Row, arguments, row, show

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.core.vault.recovery_step import Question, choose_step
from everstep_controller.journal.codec import decode_event
from everstep_controller.runtime.vault_service import VaultService

STEPS_KEPT = (10, 11)


def timed(work: Callable[[], object], repeats: int, scale: float = 1e6) -> list[float]:
    """Return how long each repeat took, in microseconds unless scaled otherwise."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * scale)
    return found


def core_rows(bench: Bench, repeats: int, loop: Row) -> Iterator[Row]:
    """Yield what the events of a job that starts and runs cost the core."""
    for phase in Phase:
        spent = [
            bench.take(
                events.Reported(
                    bench.origin(name), bench.now_ns, reports.PhaseReached(1, phase), JOB
                )
            )
            * 1e6
            for name in bench.members
        ]
        yield row(f"PhaseReached {phase.value}: each of {len(spent)}", spent, "µs", loop)
    spent = [bench.take(bench.step_of(number)) * 1e6 for number in range(20 * repeats)]
    yield row(f"JobProgressed of {len(bench.members)} members", spent, "µs", loop)


def fault_rows(bench: Bench, loop: Row) -> Iterator[Row]:
    """Yield what the recovery from a fault costs the core."""
    lost = events.Reported(
        bench.origin("n0"),
        bench.now_ns,
        reports.RankExited(generation=1, rank=0, exit_code=1, signal=0, last_line="CUDA error"),
        JOB,
    )
    yield row("RankExited: stop the generation", [bench.take(lost) * 1e6], "µs", loop)
    spent = [
        bench.take(
            events.Reported(
                bench.origin(name), bench.now_ns, reports.GenerationStopped(1, 29500), JOB
            )
        )
        * 1e6
        for name in bench.members
    ]
    yield row(f"GenerationStopped: each of {len(spent)}", spent, "µs", loop)
    yield row("GenerationStopped: the last, which plans", spent[-1:], "µs", loop)
    yield row("all of them together", [sum(spent)], "µs", loop)


def fold_rows(bench: Bench, repeats: int) -> Iterator[Row]:
    """Yield what reading the whole story again costs."""

    def decode() -> None:
        for stored in bench.journal:
            decode_event(stored.kind, stored.body)

    def fold() -> None:
        core = Core()
        for stored in bench.journal:
            core.handle(decode_event(stored.kind, stored.body), stored.now_ns)

    title = f"{len(bench.journal)} events"
    bare = row(f"decode {title}", timed(decode, repeats, 1e3), "ms")
    yield bare
    yield row(f"decode and fold {title}", timed(fold, repeats, 1e3), "ms", bare)


def catalogue_rows(bench: Bench, repeats: int) -> Iterator[Row]:
    """Yield what reports and questions cost the catalogue and the vault service."""
    held = [copies(bench, index, STEPS_KEPT) for index in range(len(bench.members))]
    count = sum(map(len, held))

    def loop() -> None:
        for some in held:
            for _ in some:
                pass

    bare = row(f"a loop over {count} copies", timed(loop, repeats), "µs")
    yield bare
    catalogue = Catalogue()
    for name, some in zip(bench.members, held, strict=True):
        catalogue.replace(name, some, 0)
    members, world = bench.members, bench.world_size
    questions: dict[str, Callable[[], object]] = {
        "recoverable": lambda: catalogue.recoverable(1, members, world),
        "layouts": lambda: catalogue.layouts(1, world),
    }
    point = BranchPoint(1, None, world, catalogue.layouts(1, world))
    addresses = dict.fromkeys(members, "a:1")
    asked = Question([point], addresses, expected=True)
    questions["choose"] = lambda: choose_step(catalogue, asked)
    for name, question in questions.items():
        yield row(f"catalogue: {name}", timed(question, repeats), "µs", bare)
    yield from _service_rows(bench, repeats, bare)


def _service_rows(bench: Bench, repeats: int, bare: Row) -> Iterator[Row]:
    port = Recorder()
    service = VaultService(lambda: bench.core.state, port)
    per_report, per_step = [], []
    for step in range(10, 12 + repeats):
        reports = [copies(bench, i, (step, step + 1)) for i in range(len(bench.members))]
        began = time.perf_counter()
        for name, report in zip(bench.members, reports, strict=True):
            named = {repr(copy).encode(): copy for copy in report}
            service.report(JOB, name, NodeHoldings(named, 0))
        per_report.append((time.perf_counter() - began) / len(reports) * 1e6)
        refresh = port.waiting.pop()
        per_step += timed(refresh, 1)
    yield row("vault report of a node", per_report, "µs", bare)
    yield row("new directives for all members", per_step, "µs", bare)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--only-whole", action="store_true", help="only the plan of a large job")
    parser.add_argument("--profile", action="store_true", help="print where the plan's time went")
    given = parser.parse_args()
    # First: what the others leave in memory makes the garbage collector's passes longer.
    whole = list(whole_rows(given.repeats, profiled=given.profile))
    if given.only_whole:
        show(whole, given.json)
        return
    nodes = [f"n{number}" for number in range(given.nodes)]
    bench = Bench(nodes, nodes[: given.members])
    loop = row("a loop over all nodes", timed(lambda: sum(1 for _ in nodes), given.repeats), "µs")
    form(bench)
    rows = [loop, *core_rows(bench, given.repeats, loop)]
    rows += [*catalogue_rows(bench, given.repeats), *fault_rows(bench, loop)]
    show([*rows, *fold_rows(bench, given.repeats), *whole], given.json)


if __name__ == "__main__":
    main()
