from collections.abc import Callable
from dataclasses import dataclass, field, replace

from everstep_common.orders import Publish
from everstep_common.preload import Preload
from everstep_common.reports import Storage, StoredStep
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    CadenceChosen,
    Event,
    FinalSaveEnded,
    LayoutLearned,
    RecoveryStepChosen,
    StepRecoverable,
)
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
from everstep_controller.core.model.snapshots import BranchPoint, Cadence, StepKey
from everstep_controller.core.model.state import State, add_job, remove_job
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.runtime.vault_service import VaultService, transfer_key

COPY = Copy("a", 1, 0, 5, False, "ff", 1, "shard-0")


@dataclass
class World:
    """A running job on nodes a and b, and what the service says to the world."""

    state: State = field(default_factory=State)
    directives: dict[str, Directive] = field(default_factory=dict)
    sent: int = 0
    events: list[Event] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    clock_ns: int = 0
    _soon: list[Callable[[], None]] = field(default_factory=list)
    _later: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            self.state.nodes[name] = NodeRecord(
                name,
                NodeState.HEALTHY,
                liveness=NodeLiveness(connected=True),
                spec=NodeSpec(bulk_address=f"{name}:1", domain=name),
            )
        self.state.names["train"] = "train-1"
        job = JobRecord(
            id="train-1",
            name="train",
            spec=JobSpec(uid=0, token_sha256="", nodes_min=2, nodes_max=2, reform=True),
            ledger=Ledger(0),
            state=JobState.RUNNING,
            generation=Generation(1, members=Members(["a", "b"])),
            lineage=Lineage([BranchPoint(1, None, 2)]),
        )
        add_job(self.state, job)
        self.service = VaultService(lambda: self.state, self)

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        return True

    def direct(self, node: str, directive: Directive) -> bool:
        self.directives[node] = directive
        self.sent += 1
        return True

    def post(self, event: Event) -> None:
        self.events.append(event)

    def announce(self, subject: str, reason: str, message: str) -> None:
        self.told.append((reason, message))

    def now_ns(self) -> int:
        return self.clock_ns

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        (self._soon if delay_s < 0.5 else self._later).append(callback)

    def settle(self) -> None:
        while self._soon:
            self._soon.pop()()

    def wait(self) -> None:
        """Let some seconds pass."""
        due, self._later = self._later, []
        for callback in due:
            callback()

    def report(
        self,
        node: str,
        *held: tuple[int, int],
        generation: int = 1,
        settled: int = 0,
        files: tuple[tuple[int, int], ...] = (),
        stored: tuple[StoredStep, ...] = (),
        failures: tuple[tuple[StepKey, str], ...] = (),
    ) -> None:
        """Report copies as (rank, step); rank 0 is of a, rank 1 of b."""
        copies = [
            Copy(node, generation, rank, step, "ab"[rank] != node, "ff", 1, f"shard-{rank}")
            for rank, step in held
        ]
        copies += [
            Copy(node, generation, rank, step, False, "ff", 1, f"shard-{rank}", Tier.DISK)
            for rank, step in files
        ]
        by_name = {repr(copy).encode(): copy for copy in copies}
        self.service.report("train", node, NodeHoldings(by_name, settled, stored, failures))
        self.settle()

    def next_job(self, root: str = "") -> JobRecord:
        """Have another job begin under the name; ``root``: it goes on from what that one left."""
        before = self.state.newest("train")
        before.state = JobState.ENDED
        job = replace(before, id="train-9", state=JobState.RUNNING, lineage=Lineage(root=root))
        add_job(self.state, job)
        self.state.names["train"] = job.id
        self.service.job_changed("train")
        self.settle()
        return job

    def choose(self, *others: str, overdue: tuple[str, ...] = ()) -> None:
        lineage = self.state.newest("train").lineage
        lineage.holders = {"a": 1, "b": 1} | dict.fromkeys(others, 0)
        self.service.choose(
            ChooseRecoveryStep(
                id="c",
                job="train",
                generation=2,
                settled_generation=1,
                holders=("a", "b"),
                branch=(BranchPoint(1, None, 2),),
                expected=True,
                reason="r",
                others=others,
                overdue=overdue,
            )
        )
        self.settle()


def test_a_step_is_recoverable_when_every_rank_is_on_two_nodes() -> None:
    world = World()
    world.report("a", (0, 5))
    world.report("b", (1, 5), (0, 5))
    assert world.directives["a"].recoverable_step is None
    world.report("a", (0, 5), (1, 5))
    assert {d.recoverable_step for d in world.directives.values()} == {5}
    assert world.service.recoverable_step("train") == 5


def test_while_the_controller_is_halted_nobody_is_directed_and_nothing_is_told() -> None:
    world = World()
    world.state.halted = "this journal is old"
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    world.choose()
    world.wait()
    assert (world.directives, world.events, world.told) == ({}, [], [])
    world.state.halted = ""
    world.service.connected("a", ["train-1"])
    world.settle()
    assert {d.recoverable_step for d in world.directives.values()} == {5}


def test_a_recoverable_step_is_not_told_late_where_the_controller_has_halted_since() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    world.events.clear()
    world.state.halted = "this journal is old"
    world.wait()
    assert world.events == []


def test_a_recoverable_step_that_no_row_of_progress_tells_is_told_after_a_while() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    world.events.clear()
    world.wait()
    assert world.events == [StepRecoverable("train-1", 1, 5)]


def test_a_recoverable_step_that_a_row_of_progress_has_told_is_not_told_again() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    world.events.clear()
    world.state.newest("train").lineage.recoverable_step = 5
    world.wait()
    assert world.events == []


def test_what_was_recoverable_before_a_fault_is_not_told_of_the_next_generation() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    world.events.clear()
    world.state.newest("train").generation.number = 2
    world.wait()
    assert world.events == []


def test_each_member_replicates_to_another_domain() -> None:
    world = World()
    world.report("a")
    assert (world.directives["a"].replica_target, world.directives["b"].replica_target) == (
        "b",
        "a",
    )


def test_a_node_that_is_short_of_memory_keeps_the_replicas_of_one_member() -> None:
    world = World()
    for name, domain in (("a", "rack-1"), ("b", "rack-1"), ("c", "rack-2")):
        world.state.nodes[name] = NodeRecord(
            name,
            NodeState.HEALTHY,
            liveness=NodeLiveness(connected=True),
            spec=NodeSpec(bulk_address=f"{name}:1", domain=domain),
        )
    world.state.newest("train").generation.members = Members(["a", "b", "c"])

    def targets() -> dict[str, str]:
        return {node: one.replica_target for node, one in world.directives.items()}

    world.report("a")
    assert targets() == {"a": "c", "b": "c", "c": "a"}
    world.service.report("train", "c", NodeHoldings({}, 0, replicas_short=True))
    world.settle()
    assert targets() == {"a": "c", "b": "a", "c": "b"}
    # Another one in its place may have more.
    world.service.forget_node("c")
    world.settle()
    assert targets() == {"a": "c", "b": "c", "c": "a"}


def test_a_directive_that_says_nothing_new_is_not_sent() -> None:
    world = World()
    world.report("a", (0, 5))
    before = world.sent
    world.report("a", (0, 5))
    assert world.sent == before
    world.service.connected("a", ["train"])
    world.settle()
    assert world.sent == before + 1


def test_the_layout_is_told_once_when_every_rank_has_a_copy() -> None:
    world = World()
    world.report("a", (0, 5))
    world.report("b", (1, 5))
    world.report("b", (1, 6))
    assert world.events == [LayoutLearned("train-1", 1, layouts=("shard-0", "shard-1"))]


def test_the_step_is_chosen_when_all_holders_have_settled() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5), settled=1)
    world.events.clear()
    world.choose()
    assert world.events == []
    world.report("a", (0, 5), (1, 5), (0, 6), settled=1)
    (chosen,) = world.events
    assert isinstance(chosen, RecoveryStepChosen)
    assert (chosen.step, chosen.generation) == (5, 2)
    assert {source.bulk_address for source in chosen.sources} == {"a:1", "b:1"}


def test_a_lost_holder_is_not_waited_for_and_not_used() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5), settled=1)
    world.report("b", (1, 5), (0, 5), (1, 6), (0, 6))
    world.events.clear()
    world.choose()
    world.state.nodes["b"].state = NodeState.LOST
    world.service.forget_node("b")
    (chosen,) = world.events
    assert isinstance(chosen, RecoveryStepChosen)
    assert chosen.step == 5
    assert {source.node for source in chosen.sources} == {"a"}


def test_after_a_restart_every_old_holder_must_have_reported() -> None:
    world = World()
    world.state.nodes["c"] = NodeRecord(
        "c",
        NodeState.HEALTHY,
        liveness=NodeLiveness(connected=True),
        spec=NodeSpec(bulk_address="c:1"),
    )
    world.report("a", (0, 5), (1, 5), settled=1)
    world.report("b", settled=1)
    world.events.clear()
    world.choose("c")
    assert world.events == []
    world.service.connected("c", [])
    assert [type(event) for event in world.events] == [RecoveryStepChosen]


def test_a_node_that_rebooted_holds_nothing_of_the_generations_so_far_only() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5), settled=1)
    world.report("b", (1, 5))
    world.service.connected("b", [])
    world.settle()
    world.events.clear()
    world.choose()
    assert [type(event) for event in world.events] == [RecoveryStepChosen]
    job = world.state.newest("train")
    job.generation.number, job.lineage.holders = 2, {"b": 2}
    world.report("b", (1, 7), generation=2)
    world.events.clear()
    world.service.choose(
        ChooseRecoveryStep(
            id="c",
            job="train",
            generation=3,
            settled_generation=2,
            holders=("b",),
            branch=(BranchPoint(2, None, 2),),
            expected=True,
            reason="r",
        )
    )
    assert world.events == []


def test_a_member_that_has_booted_since_it_was_asked_has_nothing_to_settle() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5), settled=1)
    world.report("b", (1, 5))
    world.events.clear()
    world.choose()
    assert world.events == []
    # Its launcher is there again, so its agent knows the job, and holds nothing of it.
    world.state.newest("train").lineage.holders["b"] = 0
    world.service.connected("b", ["train"])
    world.report("b")
    assert [type(event) for event in world.events] == [RecoveryStepChosen]


def test_what_an_agent_has_told_on_its_stream_before_is_not_begun_from() -> None:
    world = World()
    world.report("a", settled=1)
    world.report("b", (1, 5), (0, 5), settled=1)
    world.service.connected("b", ["train"])
    world.events.clear()
    world.choose()
    assert world.events == []
    world.report("b", settled=1)
    (chosen,) = world.events
    assert isinstance(chosen, RecoveryStepChosen)
    assert (chosen.step, chosen.lost) == (None, "no reachable copy of rank 0, rank 1")


def test_who_is_overdue_is_not_waited_for_and_what_it_has_not_settled_does_not_count() -> None:
    world = World()
    world.report("a", (0, 4), (1, 4), (0, 5), settled=1)
    world.report("b", (1, 4), (0, 4), (1, 5))
    world.events.clear()
    world.choose()
    assert world.events == []
    world.choose(overdue=("b",))
    (chosen,) = world.events
    assert isinstance(chosen, RecoveryStepChosen)
    # Step 5 would need what b has; its agent has not said that nothing of it changes any more.
    assert chosen.step == 4
    assert {source.node for source in chosen.sources} == {"a"}
    assert chosen.reason.endswith("; b did not tell in time what they hold")


def test_what_one_that_was_overdue_has_settled_counts_like_any_other() -> None:
    world = World()
    world.report("a", (0, 5), settled=1)
    world.report("b", (1, 5), settled=1)
    world.events.clear()
    world.choose(overdue=("a", "b"))
    (chosen,) = world.events
    assert isinstance(chosen, RecoveryStepChosen)
    assert chosen.step == 5
    assert "in time" not in chosen.reason


def test_an_ended_job_is_forgotten() -> None:
    world = World()
    world.report("a", (0, 5))
    world.state.newest("train").state = JobState.ENDED
    world.service.job_changed("train")
    assert world.service.recoverable_step("train") is None


def test_the_transfer_key_depends_on_secret_and_job() -> None:
    keys = {transfer_key(secret, job) for secret in (b"1", b"2") for job in ("x", "y")}
    assert len(keys) == 4


def _stored_world() -> World:
    world = World()
    job = world.state.newest("train")
    job.spec = replace(job.spec, storage=Storage("/ckpt", every_steps=5))
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5), (0, 5))
    return world


def test_a_step_is_named_to_all_and_published_by_one() -> None:
    world = _stored_world()
    assert {d.persist_steps for d in world.directives.values()} == {(5,)}
    fence = Publish(1, None, (), ())
    assert (world.directives["a"].publish, world.directives["b"].publish) == (fence, None)
    world.report("a", (0, 5), (1, 5), files=((0, 5),))
    world.report("b", (1, 5), (0, 5), files=((1, 5),))
    publish = world.directives["a"].publish
    assert publish is not None
    assert publish.target == StoredStep(1, 5, 2, "", 2)
    stored = StoredStep(1, 5, 2, "aa", 2)
    world.report("a", (0, 5), (1, 5), files=((0, 5),), stored=(stored,))
    assert world.directives["b"].persist_steps == ()
    assert world.directives["a"].publish == Publish(1, stored, (), (stored,))


def test_a_failure_of_storage_is_told_once() -> None:
    world = _stored_world()
    for step in (5, 6):
        world.report("a", (0, step), (1, step), failures=(((1, 5), "disk full"),))
    assert [told for told in world.told if told[0] == "NotStored"] == [
        ("NotStored", "step 5: disk full")
    ]


def test_a_breakpoint_is_written_though_a_lost_node_took_second_copies_with_it() -> None:
    world = _stored_world()
    job = world.state.newest("train")
    job.state, job.ending.closing = JobState.CLOSING, "ended by its user on b"
    world.state.nodes["b"].liveness.connected = False
    world.service.forget_node("b")
    world.report("a", (0, 5), (1, 5), (0, 7), (1, 7), settled=1)
    directive = world.directives["a"]
    assert 7 in directive.persist_steps
    assert directive.persist_replicas == (1,)
    world.events.clear()
    stored = StoredStep(1, 7, 2, "aa", 2)
    world.report("a", (0, 7), (1, 7), stored=(stored,), settled=1)
    assert world.events == [
        FinalSaveEnded("train-1", 1, "its last recoverable step, 7, is in storage")
    ]


def test_a_last_step_that_storage_does_not_take_is_told_as_missed() -> None:
    world = _stored_world()
    job = world.state.newest("train")
    job.state, job.ending.closing = JobState.CLOSING, "ended by its user on b"
    world.events.clear()
    failed = (((1, 7), "rank 0: No space left on device"),)
    world.report("a", (0, 7), (1, 7), failures=failed, settled=1)
    world.report("b", (0, 7), (1, 7), settled=1)
    assert (
        FinalSaveEnded(
            "train-1",
            1,
            "step 7 could not be brought to storage: rank 0: No space left on device",
            missed=True,
        )
        in world.events
    )


_ASKED = "one step in 4 is snapshotted, as the job asks"


def test_a_change_of_the_cadence_reaches_all_members_with_its_reason() -> None:
    world = World()
    job = world.state.newest("train")
    job.spec = replace(job.spec, snapshot_every_min=4, snapshot_every_max=4)
    job.lineage.last_step = 9
    world.report("a", (0, 5))
    assert {(d.snapshot_every, d.snapshot_from) for d in world.directives.values()} == {(4, 11)}
    assert world.told == [("SnapshotCadence", f"train: {_ASKED}")]
    # One terminal of a job is told.
    told = {node: d.cadence_reason for node, d in world.directives.items() if d.cadence_reason}
    assert told == {job.generation.members[0]: _ASKED}


def test_a_controller_that_was_restarted_goes_on_with_the_cadence_that_it_had_chosen() -> None:
    world = World()
    job = world.state.newest("train")
    job.cadence = Cadence(7, 21, "so", 5)
    world.report("a", (0, 5))
    assert {(d.snapshot_every, d.snapshot_from) for d in world.directives.values()} == {(7, 21)}
    assert world.told == []


def test_a_chosen_cadence_is_journaled() -> None:
    world = World()
    job = world.state.newest("train")
    job.spec = replace(job.spec, snapshot_every_min=4, snapshot_every_max=4)
    world.report("a", (0, 5))
    (chosen,) = [event for event in world.events if isinstance(event, CadenceChosen)]
    Core(world.state).handle(chosen, 0)
    assert (job.cadence.every, job.cadence.reason) == (4, _ASKED)


def test_the_numbers_tell_where_the_job_would_go() -> None:
    world = _stored_world()
    numbers = world.service.numbers("train")
    assert numbers is not None
    assert (numbers.restore_step, numbers.recoverable_step) == (5, 5)
    assert world.service.numbers("nobody") is None
    assert world.service.recoverable_age_ns("train") == 0


def test_ranks_that_save_different_bytes_under_one_name_are_told_of_once() -> None:
    world = World()
    for step in (5, 6):
        for node in "ab":
            held = {
                f"{node}{rank}{step}".encode(): Copy(
                    node, 1, rank, step, node != "ab"[rank], f"of {rank}", 1, "the same names"
                )
                for rank in (0, 1)
            }
            world.service.report("train", node, NodeHoldings(held, 0, (), ()))
            world.settle()
    said = [message for reason, message in world.told if reason == "SnapshotsDiffer"]
    assert len(said) == 1
    assert "ranks 0 and 1 saved different bytes of step 5 under the same names" in said[0]


def test_equal_copies_of_two_ranks_are_nothing_to_tell() -> None:
    world = World()
    for node in "ab":
        held = {
            f"{node}{rank}".encode(): Copy(node, 1, rank, 5, node != "ab"[rank], "same", 1, "w")
            for rank in (0, 1)
        }
        world.service.report("train", node, NodeHoldings(held, 0, (), ()))
        world.settle()
    assert [reason for reason, _ in world.told] == []


def test_what_another_job_of_the_name_left_is_not_the_next_ones_though_numbers_agree() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    world.next_job()
    assert not list(world.service.copies("train"))
    assert len(list(world.service.copies("train-1"))) == 4
    world.choose()
    world.service.report("train-9", "a", NodeHoldings({}, 1))
    world.service.report("train-9", "b", NodeHoldings({}, 1))
    (choice,) = [event for event in world.events if isinstance(event, RecoveryStepChosen)]
    assert (choice.step, choice.lost) == (None, "no reachable copy of rank 0, rank 1")
    # Nodes that come back tell which of the two they have something of.
    world.service.connected("a", ["train-9"])
    assert {copy.node for copy in world.service.copies("train-1")} == {"b"}


def test_a_job_that_goes_on_from_another_has_its_copies_and_that_one_has_none() -> None:
    world = World()
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    world.next_job(root="train-1")
    assert len(list(world.service.copies("train"))) == 4
    assert not list(world.service.copies("train-1"))
    assert {told.job for told in world.directives.values()} == {"train-9"}
    # What happens to the one before it concerns nobody any more.
    world.service.job_changed("train-1")
    world.service.report("train-1", "a", NodeHoldings({}, 1))
    assert {copy.node for copy in world.service.copies("train")} == {"b"}


def test_what_is_known_of_a_lineage_goes_with_its_last_job_and_its_last_copy() -> None:
    world = World()
    world.report("a", (0, 5))
    job = world.next_job(root="train-1")
    remove_job(world.state, world.state.jobs["train-1"])
    remove_job(world.state, job)
    del world.state.names["train"]
    world.service.report("other-3", "b", NodeHoldings({b"x": COPY}, 0))
    assert world.service.held("train-1", "a")
    world.service.connected("a", ["other-3"])
    world.service.report("other-4", "b", NodeHoldings({b"x": COPY}, 0))
    assert set(world.service._lineages) == {"other-3", "other-4"}


def test_a_controller_that_starts_finds_whose_the_copies_are() -> None:
    world = World()
    world.next_job(root="train-1")
    world.service = VaultService(lambda: world.state, world)
    world.service.report("train-1", "a", NodeHoldings({b"x": COPY}, 0))
    assert [copy.step for copy in world.service.copies("train-9")] == [5]
