"""What is known of the snapshots of a job that has ended: kept for people, no ground for orders."""

from everstep_common.preload import Preload
from everstep_controller.core.accounting.ledger import Ledger
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
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.core.vault.snapshot_table import StepState, count_snapshots, snapshot_steps
from everstep_controller.runtime.vault_service import VaultService


class World:
    """A job on two nodes, and what the service orders."""

    def __init__(self) -> None:
        self.directed: list[tuple[str, Directive]] = []
        self.state = State(
            nodes={
                name: NodeRecord(
                    name,
                    NodeState.HEALTHY,
                    liveness=NodeLiveness(connected=True),
                    spec=NodeSpec(bulk_address=f"{name}:1"),
                )
                for name in ("a", "b")
            }
        )
        self.begin(generation=1)
        self.service = VaultService(lambda: self.state, self)

    def begin(self, generation: int) -> None:
        """Start the job, or another one of its name."""
        self.state.names["train"] = "train-1"
        job = JobRecord(
            id="train-1",
            name="train",
            spec=JobSpec(uid=0, token_sha256="", nodes_min=2, nodes_max=2, reform=True),
            ledger=Ledger(0),
            state=JobState.RUNNING,
            generation=Generation(generation, members=Members(["a", "b"])),
            lineage=Lineage([BranchPoint(generation, None, 2)]),
        )
        add_job(self.state, job)

    def end(self) -> None:
        self.state.newest("train").state = JobState.ENDED
        self.service.job_changed("train")

    def hold(self, node: str, *steps: int, generation: int = 1) -> None:
        """Tell that a node holds its rank's snapshots of these steps."""
        rank = ("a", "b").index(node)
        copies = [
            Copy(node, generation, rank, step, False, f"{rank}{step}", 8, str(rank))
            for step in steps
        ]
        self.service.report(
            "train", node, NodeHoldings({repr(copy).encode(): copy for copy in copies}, generation)
        )

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        return True

    def direct(self, node: str, directive: Directive) -> bool:
        self.directed.append((node, directive))
        return True

    def post(self, event: object) -> None:
        del event

    def announce(self, subject: str, reason: str, message: str) -> None:
        del subject, reason, message

    def later(self, delay_s: float, callback: object) -> None:
        assert callable(callback)
        callback()

    def now_ns(self) -> int:
        return 0


def test_the_copies_of_a_job_that_has_ended_are_still_known() -> None:
    world = World()
    world.service.job_changed("train")
    world.hold("a", 4, 5)
    world.hold("b", 4)
    world.end()
    assert {(copy.node, copy.step) for copy in world.service.copies("train")} == {
        ("a", 4), ("a", 5), ("b", 4),
    }  # fmt: skip
    world.hold("a")
    assert {copy.node for copy in world.service.copies("train")} == {"b"}


def test_nobody_is_directed_for_a_job_that_has_ended() -> None:
    world = World()
    world.service.job_changed("train")
    world.hold("a", 4)
    world.end()
    before = len(world.directed)
    assert before
    world.hold("a", 4, 5)
    world.service.connected("b", ["train"])
    world.service.forget_node("b")
    assert len(world.directed) == before


def test_another_job_of_the_name_begins_without_the_first_ones_numbers() -> None:
    world = World()
    world.service.job_changed("train")
    world.hold("a", 4)
    world.hold("b", 4)
    world.end()
    world.begin(generation=2)
    world.service.job_changed("train")
    assert world.service.recoverable_step("train") is None
    view = world.service.view("train")
    assert view is not None
    # It is still in the memory of the nodes, and never restored.
    assert [(line.step, line.state) for line in snapshot_steps(view)] == [(4, StepState.ABANDONED)]
    assert count_snapshots(view).restore_step is None
    world.hold("a", 1, generation=2)
    assert {node for node, directive in world.directed if directive.generation == 2} == {"a", "b"}


def test_a_job_that_nobody_knows_any_more_has_no_copies() -> None:
    world = World()
    world.service.job_changed("train")
    world.hold("a", 4)
    world.end()
    del world.state.jobs[world.state.names.pop("train")]
    world.service.job_changed("train")
    assert list(world.service.copies("train")) == []
    assert world.service.view("train") is None
