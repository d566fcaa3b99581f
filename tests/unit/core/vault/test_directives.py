"""What the vaults of a job's nodes are told, decided by a value that nobody journals."""

from dataclasses import dataclass, field, replace

from everstep_common.reports import PassedStep, Storage, Turnover
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import CadenceChosen, Event, KeeperChosen, LayoutLearned
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Launcher,
    Members,
    Planned,
    PlannedKind,
)
from everstep_controller.core.model.node import NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.snapshots import BranchPoint, Cadence
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.catalogue import Recoverable
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.directives import (
    Holdings,
    JobSnapshots,
    Message,
    StandbysMade,
    VaultNews,
)
from everstep_controller.core.vault.messages import Directive, NodeHoldings

NODES = ("a", "b", "c")
S = 1_000_000_000


def _job(*members: str) -> JobRecord:
    spec = JobSpec(uid=0, token_sha256="", nodes_min=1, nodes_max=2, reform=True)
    job = JobRecord("train-1", "train", spec, ledger=Ledger(0), state=JobState.RUNNING)
    job.launchers = {name: Launcher(29500) for name in NODES}
    _start(job, 1, *members)
    return job


def _start(job: JobRecord, generation: int, *members: str) -> None:
    job.generation = Generation(generation, members=Members(members))
    job.lineage.branch = [BranchPoint(generation, None, len(members))]


def _state() -> State:
    state = State()
    for name in NODES:
        state.nodes[name] = NodeRecord(
            name,
            NodeState.HEALTHY,
            liveness=NodeLiveness(connected=True),
            spec=NodeSpec(bulk_address=f"{name}:1", domain=name),
        )
    return state


@dataclass
class Snapshots:
    """What is known of one job, and what was told of it."""

    job: JobRecord
    state: State = field(default_factory=_state)
    known: JobSnapshots = field(default_factory=lambda: JobSnapshots("train"))
    news: VaultNews = field(default_factory=VaultNews)

    def report(
        self,
        node: str,
        *held: tuple[int, int],
        settled: int = 0,
        passed: tuple[PassedStep, ...] = (),
    ) -> None:
        """Report copies as (rank, step), each rank a part of its own."""
        members = self.job.generation.members
        copies = [
            Copy(node, 1, rank, step, members[rank] != node, "ff", 8, f"part-{rank}")
            for rank, step in held
        ]
        self.known.record_report(
            node,
            NodeHoldings({repr(copy).encode(): copy for copy in copies}, settled, passed=passed),
        )

    def decide(self) -> list[Event | Message]:
        """Decide anew; return what is news."""
        self.known.adopt(self.job, self.state)
        decision = self.known.decide(self.job, self.state, 0)
        return list(self.news.since(decision, self.known, self.job))

    def told(self) -> dict[str, Directive]:
        return dict(self.known.directives())


def test_the_same_reports_in_another_order_lead_to_the_same_orders() -> None:
    whole = ((0, 5), (1, 5))
    reports = {"a": whole, "b": whole, "c": ()}
    told = []
    for order in (list(reports), list(reports)[::-1]):
        snapshots = Snapshots(_job("a", "b"))
        for node in order:
            snapshots.report(node, *reports[node])
        snapshots.decide()
        told.append(snapshots.told())
    assert told[0] == told[1]
    assert told[0]["a"].recoverable_step == 5


def test_a_decision_that_follows_from_nothing_new_has_no_news_and_the_same_orders() -> None:
    snapshots = Snapshots(_job("a", "b"))
    for node in ("a", "b"):
        snapshots.report(node, (0, 5), (1, 5))
    first = snapshots.decide()
    assert [type(news) for news in first] == [LayoutLearned]
    told = snapshots.told()
    assert (snapshots.decide(), snapshots.told()) == ([], told)


def _step_is_written_alone(job: JobRecord) -> Snapshots:
    """Have b be away, whose rank is to write step 200 by itself, and 4 be recoverable before."""
    job.spec = replace(job.spec, storage=Storage("/ckpt"))
    job.lineage.recoverable_step, job.lineage.last_step = 4, 199
    job.planned = Planned(PlannedKind.DRAIN, "people", "a test", 1, 0, 200)
    snapshots = Snapshots(job)
    snapshots.state.nodes["b"].liveness.silence.doubt = "its agent is away"
    return snapshots


def test_of_steps_whose_own_copies_are_lost_one_stays_while_an_absent_rank_writes_another() -> None:
    snapshots = _step_is_written_alone(_job("a", "b", "c"))
    # The agent of b came back without its memory, saved a step, and is away again.
    snapshots.report("a", (0, 4), (0, 5), (0, 6))
    snapshots.report("b", (1, 60))
    snapshots.report("c", *((rank, step) for rank in (2, 1) for step in (4, 5, 6)))
    snapshots.decide()
    assert snapshots.known.orders.absent.step == 200
    # There is no other one to restore from than 6.
    assert snapshots.known.orders.recoverable.dead_steps == (4, 5, 60)


def test_a_step_is_dead_as_soon_as_a_rank_has_left_it_out_and_stays_so() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.report("a", (0, 4), (0, 6), (1, 4))
    snapshots.report("b", (1, 4), (0, 4))
    snapshots.decide()
    assert snapshots.known.orders.recoverable == Recoverable(4, ())
    left_out = PassedStep(1, 1, 6)
    snapshots.report("b", (1, 4), (0, 4), passed=(left_out,))
    snapshots.decide()
    assert snapshots.known.orders.recoverable == Recoverable(4, (6,))
    # Whatever is told of it later: a has freed it, which is told later still.
    snapshots.report("a", (0, 4), (0, 6), (1, 4), (1, 6))
    snapshots.report("b", (1, 4), (1, 6), (0, 4), (0, 6))
    snapshots.decide()
    assert snapshots.known.orders.recoverable == Recoverable(4, (6,))
    for node in ("a", "b"):
        snapshots.report(node, (0, 8), (1, 8))
    snapshots.decide()
    assert snapshots.known.orders.recoverable == Recoverable(8, ())


def test_what_was_left_out_in_another_generation_says_nothing_of_this_one() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.report("a", (0, 4), (0, 6))
    snapshots.report("b", (1, 4), passed=(PassedStep(2, 1, 9), PassedStep(0, 1, 9)))
    snapshots.decide()
    assert snapshots.known.orders.recoverable.dead_steps == ()


def test_nothing_makes_room_for_a_step_before_all_members_have_told_what_they_hold() -> None:
    snapshots = _step_is_written_alone(_job("a", "b", "c"))
    snapshots.report("a", (0, 5), (0, 6))
    snapshots.decide()
    assert snapshots.known.orders.absent.step == 200
    # What the core knows of, 4, may have been freed for 5 before the controller started again.
    assert not snapshots.known.orders.recoverable.dead_steps
    snapshots.report("c", *((rank, step) for rank in (2, 1) for step in (5, 6)))
    snapshots.decide()
    assert snapshots.known.orders.recoverable.dead_steps == (6,)


def test_nothing_of_an_older_generation_is_left_in_the_orders_of_a_new_one() -> None:
    snapshots = Snapshots(_job("a", "b"))
    for node in ("a", "b"):
        snapshots.report(node, (0, 5), (1, 5))
    snapshots.decide()
    assert snapshots.told()["c"].spare is not None
    _start(snapshots.job, 2, "a", "c")
    snapshots.decide()
    told = snapshots.told()
    assert (told["a"].replica_target, told["c"].replica_target) == ("c", "a")
    assert (told["a"].replica_sources, told["c"].replica_sources) == (("c",), ("a",))
    assert told["b"].replica_sources == ()
    assert (told["a"].collector, told["b"].collector, told["c"].collector) == ("", "", "a")
    # What b holds of the old generation keeps it among those that are told what may be freed.
    assert {(one.generation, one.recoverable_step, one.spare) for one in told.values()} == {
        (2, None, None)
    }


def test_a_spare_that_keeps_the_replicas_of_a_job_is_told_whose_they_are() -> None:
    snapshots = Snapshots(_job("a"))
    snapshots.report("a", (0, 5))
    snapshots.decide()
    told = snapshots.told()
    assert (told["a"].replica_target, told["b"].replica_sources) == ("b", ("a",))


def test_a_keeper_is_told_once_to_the_core_and_before_anything_else() -> None:
    snapshots = Snapshots(_job("a"))
    snapshots.report("a", (0, 5))
    news = snapshots.decide()
    assert news[0] == KeeperChosen("train-1", "b")
    assert not [one for one in snapshots.decide() if isinstance(one, KeeperChosen)]


def test_a_cadence_of_before_a_restart_goes_on_without_being_news() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.job.cadence = Cadence(7, 21, "so", 5)
    assert not [one for one in snapshots.decide() if isinstance(one, CadenceChosen)]
    assert {(one.snapshot_every, one.snapshot_from) for one in snapshots.told().values()} == {
        (7, 21)
    }


def test_a_step_is_chosen_once_for_each_question() -> None:
    snapshots = Snapshots(_job("a", "b"))
    for node in ("a", "b"):
        snapshots.report(node, (0, 5), (1, 5), settled=1)
    snapshots.decide()
    assert snapshots.known.choose_step(snapshots.state) is None
    snapshots.known.asked = ChooseRecoveryStep(
        id="c", job="train", generation=2, settled_generation=1, holders=("a", "b"),
        branch=(BranchPoint(1, None, 2),), expected=True, reason="r",
    )  # fmt: skip
    chosen = snapshots.known.choose_step(snapshots.state)
    assert chosen is not None
    assert (chosen.step, chosen.generation, chosen.tier) == (5, 2, "memory")
    assert snapshots.known.choose_step(snapshots.state) is None


def test_nobody_is_directed_for_a_job_that_is_over_but_what_it_left_stays_known() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.report("a", (0, 5), (1, 5))
    snapshots.decide()
    snapshots.known.end()
    assert snapshots.known.generation.members == ()
    assert snapshots.known.orders.recoverable.step is None
    assert [copy.step for copy in snapshots.known.holdings.catalogue.copies()] == [5, 5]


def test_standbys_that_are_never_ready_keep_no_cadence_from_being_decided() -> None:
    begun = StandbysMade().after(True, 100 * S)
    assert begun.after(True, 130 * S).busy_until_ns == 130 * S
    assert begun.after(True, 1000 * S).busy_until_ns == 400 * S
    ready = begun.after(True, 130 * S).after(False, 131 * S)
    assert (ready.since_ns, ready.busy_until_ns) == (None, 130 * S)


def test_slots_count_where_they_are_taken_longest_and_nodes_that_tell_nothing_do_not() -> None:
    holdings = Holdings()
    assert holdings.slowest_turnover(NODES) is None
    holdings.record("a", NodeHoldings({}, 0, turnover=Turnover(4, 5, 20)))
    holdings.record("b", NodeHoldings({}, 0, turnover=Turnover(3, 7, 9)))
    holdings.record("c", NodeHoldings({}, 0))
    assert holdings.slowest_turnover(NODES) == Turnover(3, 7, 20)
    assert holdings.slowest_turnover(("a", "c")) == Turnover(4, 5, 20)
    holdings.record("a", NodeHoldings({}, 0))
    assert holdings.slowest_turnover(("a", "c")) is None


def test_a_rule_that_was_to_begin_later_holds_from_the_first_step_of_a_new_generation() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.job.spec = replace(snapshots.job.spec, snapshot_every_min=50, snapshot_every_max=50)
    snapshots.job.lineage.last_step = 120
    snapshots.decide()
    assert {one.snapshot_from for one in snapshots.told().values()} == {122}
    _start(snapshots.job, 2, "a", "b")
    snapshots.decide()
    told = {(one.snapshot_every, one.snapshot_from) for one in snapshots.told().values()}
    assert told == {(50, 0)}


def test_a_meeting_ends_with_its_generation_and_that_is_journaled() -> None:
    snapshots = Snapshots(_job("a", "b"))
    snapshots.job.cadence = Cadence(8, 64, "they meet", 1, usual_every=1)
    snapshots.decide()
    assert {one.snapshot_every for one in snapshots.told().values()} == {8}
    _start(snapshots.job, 2, "a", "b")
    chosen = [one for one in snapshots.decide() if isinstance(one, CadenceChosen)]
    assert [(one.cadence.every, one.cadence.usual_every) for one in chosen] == [(1, 0)]
    told = {(one.snapshot_every, one.snapshot_from) for one in snapshots.told().values()}
    assert told == {(1, 0)}
