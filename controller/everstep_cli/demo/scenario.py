"""Scenario of the demo: three faults on a running job, and what is seen of each recovery."""

from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_cli.demo import proofs, reaper
from everstep_cli.demo.cluster import NODES, SPARE, DemoCluster
from everstep_cli.demo.cluster_view import ClusterView
from everstep_cli.demo.cluster_watch import ClusterWatch, DemoError
from everstep_cli.demo.losses import LossComparison, compare, read_losses
from everstep_cli.demo.processes import Child
from everstep_cli.demo.proofs import ActSeen, DemoClaim

PROCESS_NODE, DEAD_NODE, FAULTY_NODE = "node-2", "node-3", "node-4"

# A line as the NVIDIA driver writes it; the address and the process are any.
XID_LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"

# When the faults come, as shares of the job's steps: each after a stretch of calm training.
_WHEN = (0.15, 0.40, 0.65)
_START_S = 90.0
_RECOVERY_S = 90.0
# Ten times what a step takes alone, for a machine that is busy with something else.
_TRAINING_S_PER_STEP = 1.0


@dataclass(slots=True)
class Scenario:
    """One run of the demo; ``claims`` grows as acts end, so that a failure leaves what was seen."""

    cluster: DemoCluster
    watch: ClusterWatch
    claims: list[DemoClaim] = field(default_factory=list)
    losses: LossComparison | None = None
    reference: Child | None = None
    # Is told the address of the page once there is something on it; None: nobody wants one.
    page_opened: Callable[[str], None] | None = None

    def run(self) -> None:
        """Play all acts. Raises DemoError when one cannot be played to its end."""
        self._open()
        self._act(1, "SIGKILL one training process", PROCESS_NODE, self._kill_process)
        self._act(2, "SIGKILL a whole node", DEAD_NODE, self._kill_node)
        self._act(3, "Xid 79 in the kernel log of a node", FAULTY_NODE, self._fail_gpu)
        self._finish()

    def _open(self) -> None:
        cluster, watch = self.cluster, self.watch
        watch.display.announce("one controller and five agents start")
        self.reference = cluster.start_reference()
        watch.needed.append(cluster.start_controller())
        watch.needed += [cluster.start_node(name) for name in NODES]
        watch.until(
            "five healthy nodes",
            _START_S,
            lambda view: all(view.node(name).state == "healthy" for name in NODES),
        )
        if self.page_opened is not None:
            watch.needed.append(cluster.start_page())
            watch.until("the page", _START_S, lambda _: bool(cluster.page_address()))
            self.page_opened(cluster.page_address())
        watch.display.announce("a training job starts on four nodes, the fifth is a spare")
        watch.needed += [cluster.launch(name) for name in NODES if name != SPARE]
        watch.until("the job runs", _START_S, lambda view: len(view.members) == len(NODES) - 1)
        watch.needed.append(cluster.launch(SPARE))
        watch.until("a first step", _START_S, lambda view: view.step >= 0)

    def _act(self, act: int, what: str, node: str, fault: Callable[[ClusterView], None]) -> None:
        watch = self.watch
        calm = int(self.cluster.steps * _WHEN[act - 1])
        watch.display.announce(f"training, until step {calm}")
        watch.until(
            f"step {calm}", self._training_s, lambda view: _trains(view) and view.step > calm
        )
        before = watch.view
        watch.display.announce(f"{act}. {what}: {node}")
        fault(before)
        known = len(before.job.incidents) if before.job else 0
        try:
            after = watch.until(
                f"recovery from {what}", _RECOVERY_S, lambda view: _recovered(view, known)
            )
        finally:
            # Also when it never recovered: what was seen belongs into the report.
            self.claims += self._judge(act, self._seen(act, node, before, watch.view))
        watch.display.announce(f"   recovered: generation {after.generation}, step {after.step}")

    def _seen(self, act: int, node: str, before: ClusterView, after: ClusterView) -> ActSeen:
        steps = [step for step, _ in read_losses(self.cluster.losses_path(after.generation))]
        return ActSeen(
            act=act,
            node=node,
            before=before,
            after=after,
            restores=self.cluster.restores(),
            first_step=min(steps, default=None),
        )

    def _judge(self, act: int, seen: ActSeen) -> list[DemoClaim]:
        if act == 1:
            return list(proofs.process_killed(seen))
        if act == 2:
            return list(proofs.node_killed(seen, SPARE))
        return list(proofs.gpu_failed(seen))

    def _kill_process(self, before: ClusterView) -> None:
        ranks = self.cluster.ranks(PROCESS_NODE)
        if not ranks or not reaper.kill(ranks[0]):
            raise DemoError(f"no training process was found on {PROCESS_NODE}")

    def _kill_node(self, before: ClusterView) -> None:
        cluster = self.cluster
        node = [cluster.nodes[DEAD_NODE], cluster.launchers[DEAD_NODE]]
        self.watch.needed = [child for child in self.watch.needed if child not in node]
        processes = self.watch.owned.below(*node)
        # Holder, agent, launcher and one worker at least.
        if len(processes) < 4:
            raise DemoError(f"only {len(processes)} processes were found on {DEAD_NODE}")
        for process in processes:
            reaper.kill(process)

    def _fail_gpu(self, before: ClusterView) -> None:
        with self.cluster.kernel_log(FAULTY_NODE).open("a", encoding="utf-8") as log:
            log.write(XID_LINE)

    def _finish(self) -> None:
        cluster, watch = self.cluster, self.watch
        watch.display.announce("training, until its last step")
        launchers = [child for name, child in cluster.launchers.items() if name != DEAD_NODE]
        watch.needed = [child for child in watch.needed if child not in launchers]
        final = watch.until(
            "the end of the job", self._training_s, lambda view: view.state == "ended"
        )
        watch.until(
            "the end of the launchers",
            _RECOVERY_S,
            lambda _: all(child.exit_code is not None for child in launchers),
        )
        watch.display.announce("comparing with an uninterrupted run")
        watch.until("the uninterrupted run", self._training_s, lambda _: self._reference_done())
        run = [line for path in cluster.all_losses() for line in read_losses(path)]
        self.losses = compare(run, read_losses(cluster.reference_path), cluster.steps)
        exits = [(child.name, child.exit_code or 0) for child in launchers]
        ledger = watch.ledger()
        self.claims += proofs.ending(final, ledger, self.losses, exits)

    @property
    def _training_s(self) -> float:
        return _RECOVERY_S + self.cluster.steps * _TRAINING_S_PER_STEP

    def _reference_done(self) -> bool:
        return self.reference is not None and self.reference.exit_code is not None


def _trains(view: ClusterView) -> bool:
    return view.state in ("running", "warming")


def _recovered(view: ClusterView, known: int) -> bool:
    incidents = view.job.incidents if view.job else []
    return len(incidents) > known and incidents[known].over_ns > 0 and _trains(view)
