"""A nominated node is tested where its ranks have gone anyway, and nothing waits longer for it."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import PairFigure, PairTested
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.jobs import orders
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.pair_test import PAIR_HOLD_NS, PairOutcome, PairRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.recovery import pair_tests
from everstep_controller.core.turn import Turn
from everstep_controller.journal.codec import decode_event, decode_state, encode
from unit.core.jobs.test_stalls import told
from unit.core.planned.test_slow_swap import CLOCKS, ENFORCED, SlowStory, part
from unit.core.test_decisions import S

USUAL = 10_000_000
HOLD_S = PAIR_HOLD_NS / S


class PairStory(SlowStory):
    """A job of two nodes with a spare; n1 is named slow, and found by no agent."""

    def begin(self, *, spare: bool = True) -> "PairStory":
        super().begin(spare=spare)
        self.judge(part())
        return self

    def node(self, name: str = "n1") -> NodeRecord:
        return self.core.state.nodes[name]

    def stop(self) -> list[actions.Action]:
        """Have the job stopped for something else, until no process is left."""
        self.exit_rank("n0")
        return self.stop_all()

    def answer(
        self,
        name: str,
        took: int = USUAL,
        *,
        refusal: str = "",
        test: str = "n1/pair/1",
        work: str = "gpu0 compute",
    ) -> list[actions.Action]:
        figures = () if refusal else (PairFigure(work, (took,) * 3),)
        report = PairTested(test, figures, refusal=refusal)
        return self.tell(events.Reported(self.origin(name), self.now_ns, report))

    def asked(self) -> list[str]:
        """Return who has still to answer, as after a restart of the controller."""
        due = orders.outstanding(self.core.state)
        return sorted(one.node for one in due if isinstance(one, actions.RunPairTest))

    def finish(self, took: int = USUAL) -> list[actions.Action]:
        self.answer("n0")
        self.answer("n2")
        return self.answer("n1", took)

    def is_slow(self) -> bool:
        return any("PairTestSlow" in name for name in self.node().health.findings)


def asked_in(done: list[actions.Action]) -> list[str]:
    return sorted(one.node for one in done if isinstance(one, actions.RunPairTest))


def test_a_slow_node_without_a_finding_is_nominated_and_keeps_its_ranks() -> None:
    story = PairStory(settings=ENFORCED).begin()
    assert story.node().pair.nominated_ns
    assert "tested beside another node when its ranks stop next" in story.job.slow.plan
    assert story.state_of_job() is JobState.RUNNING
    assert (story.asked(), story.is_planned(), story.drained()) == ([], False, [])


def test_when_its_ranks_have_gone_it_is_tested_beside_two_others_and_the_plan_waits() -> None:
    story = PairStory(settings=ENFORCED).begin()
    done = story.stop()
    assert asked_in(done) == ["n0", "n1", "n2"]
    assert story.state_of_job() is JobState.STOPPING
    assert story.job.ledger.segments[-1].category is Category.DIAGNOSE
    ((_, begun),) = [one for one in told(done) if one[0] == "PairTestBegun"]
    assert "beside n0 and n2, for which j waits, 10 s at most: rank 1 takes 1.30 times" in begun


def test_a_confirmed_node_is_swapped_before_the_next_plan() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    done = story.finish(12 * USUAL // 10)
    assert story.is_slow()
    assert story.drained() == ["n1"]
    assert story.state_of_job() is JobState.REPLANNING
    assert sorted(story.job.generation.members) == ["n0", "n2"]
    ((_, finding),) = [one for one in told(done) if one[0] == "PairTestSlow"]
    assert "gpu0 compute 1.20 times (12 ms, 10 ms on n0)" in finding
    (_, plan), *_ = [one for one in told(done) if one[0] == "SlowPlanned"]
    assert "n1 makes j wait, and a pair test found PairTestSlow: n1 is slower than" in plan


def test_a_host_that_any_process_can_slow_down_is_told_and_is_no_evidence() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    for name, took in (("n0", USUAL), ("n2", USUAL), ("n1", 2 * USUAL)):
        story.answer(name, took, work="host cores")
    assert story.is_slow()
    assert (story.drained(), story.state("n1").value) == ([], "healthy")
    assert sorted(story.job.generation.members) == ["n0", "n1"]


def test_where_swaps_are_only_advised_it_is_told_and_the_job_goes_on_there() -> None:
    story = PairStory(settings=Settings(mode=Mode.ENFORCE)).begin()
    story.stop()
    story.finish(12 * USUAL // 10)
    assert story.is_slow()
    assert story.drained() == []
    assert sorted(story.job.generation.members) == ["n0", "n1"]


def test_one_that_passes_is_told_stays_and_is_not_tested_again_for_an_hour() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    done = story.finish()
    ((_, passed),) = [one for one in told(done) if one[0] == "PairTestPassed"]
    assert passed.startswith(
        "the pair test of n1 beside n0 and n2 shows no difference that lasts: gpu0"
    )
    assert not story.is_slow()
    assert sorted(story.job.generation.members) == ["n0", "n1"]
    story.choose(0)
    node, job = story.node(), story.job
    turn = Turn(story.core.state, story.now_ns)
    pair_tests.nominate(turn, node, job, "again")
    assert not node.pair.nominated_ns
    turn = Turn(story.core.state, story.now_ns + pair_tests.REST_NS)
    pair_tests.nominate(turn, node, job, "again")
    assert node.pair.nominated_ns


def test_a_test_that_nobody_answers_delays_the_plan_by_its_deadline_and_no_more() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.answer("n0")
    story.tell(events.TimerDue("pair/n1"), after_s=HOLD_S - 1)
    assert story.state_of_job() is JobState.STOPPING
    done = story.tell(events.TimerDue("pair/n1"), after_s=1)
    assert story.state_of_job() is JobState.REPLANNING
    assert sorted(story.job.generation.members) == ["n0", "n1"]
    assert ("PairTestUndecided", "n1 was not tested: its agent has not answered in time") in told(
        done
    )
    assert (story.asked(), story.is_slow()) == ([], False)
    # What comes late is taken for nothing.
    story.answer("n1", 12 * USUAL // 10)
    assert not story.is_slow()


def test_a_refusal_ends_it_at_once() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.answer("n1", refusal="2 ranks run here")
    assert story.state_of_job() is JobState.REPLANNING
    result = story.node().pair.result
    assert result is not None
    assert result.outcome is PairOutcome.UNDECIDED


def test_a_partner_that_is_silent_is_left_out_after_the_deadline() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.core.state.nodes["n0"].pair.baseline = {"gpu0 compute": USUAL}
    story.answer("n0")
    story.answer("n1", 12 * USUAL // 10)
    assert story.state_of_job() is JobState.STOPPING
    story.tell(events.TimerDue("pair/n1"), after_s=HOLD_S)
    assert story.is_slow()


@pytest.mark.parametrize(
    "prepare",
    [
        lambda story: story.judge(),
        lambda story: story.find("n1", CLOCKS),
        lambda story: story.tell(events.OperatorDrained("n1", "ops", "fan")),
        lambda story: story.tell(events.AutomationPaused("n1", "ops", "x")),
        lambda story: story.tell(events.NodeDisconnected("n1")),
    ],
)
def test_what_speaks_against_a_test_leaves_the_plan_as_it_was(
    prepare: Callable[[PairStory], object],
) -> None:
    """Nobody is asked, nothing waits: not slow any more, drained, paused, ended, or silent."""
    story = PairStory(settings=ENFORCED).begin()
    prepare(story)
    assert asked_in(story.stop()) == []
    assert not pair_tests.holds(story.core.state, story.job)


@pytest.mark.parametrize(
    "order",
    [events.AutomationPaused("j", "ops", "x"), events.StopOrdered("j", "ops", "enough")],
)
def test_a_job_that_ends_or_is_paused_waits_for_no_test(order: events.Event) -> None:
    """Its nodes are free then, and tested as such."""
    story = PairStory(settings=ENFORCED).begin()
    story.tell(order)
    assert asked_in(story.stop()) == ["n0", "n1", "n2"]
    assert story.state_of_job() is not JobState.STOPPING
    assert not pair_tests.holds(story.core.state, story.job)


def test_partners_are_healthy_alike_and_have_no_ranks() -> None:
    story = PairStory(nodes=6, settings=ENFORCED).begin()
    nodes = story.core.state.nodes
    nodes["n0"].spec = replace(nodes["n0"].spec, inventory=reports.Inventory(cpu_model="another"))
    nodes["n2"].pair.nominated_ns = 1
    story.find("n3", CLOCKS)
    assert asked_in(story.stop()) == []
    story = PairStory(nodes=6, settings=ENFORCED).begin()
    for node in (story.core.state.nodes["n2"], story.node()):
        node.spec = replace(node.spec, domain="pod/leaf-2")
    done = story.stop()
    test = story.node().pair.running
    assert test is not None
    assert test.partners == ["n2", "n0"]
    assert asked_in(done) == ["n0", "n1", "n2"]


def test_observed_only_it_is_never_tested() -> None:
    story = PairStory(settings=replace(ENFORCED, observe=("PairTestSlow",))).begin()
    assert not story.node().pair.nominated_ns
    assert asked_in(story.stop()) == []


def test_a_free_node_is_tested_beside_free_ones_and_no_job_waits() -> None:
    story = PairStory(nodes=5, settings=ENFORCED).begin()
    story.tell(events.OperatorDrained("n1", "ops", "look"))
    story.stop()
    story.choose(0)
    assert sorted(story.job.generation.members) == ["n0", "n2"]
    story.tell(events.SettingsApplied(ENFORCED))
    assert story.asked() == ["n1", "n3", "n4"]
    assert not pair_tests.holds(story.core.state, story.job)
    for name in ("n3", "n4"):
        story.answer(name)
    story.answer("n1", 12 * USUAL // 10)
    assert story.is_slow()
    assert story.state_of_job() is JobState.STARTING


def test_by_hand_it_is_refused_while_ranks_run_and_made_where_none_are() -> None:
    story = PairStory(nodes=5, settings=ENFORCED).begin()
    state = story.core.state
    assert "ranks of j run on n1" in pair_tests.problem(state, "n1", "")
    assert "ranks of j run on n0" in pair_tests.problem(state, "n2", "n0")
    assert "its own partner" in pair_tests.problem(state, "n2", "n2")
    assert pair_tests.problem(state, "n2", "n3") == ""
    done = story.tell(events.PairTestOrdered("n2", "n3", "ops"))
    assert asked_in(done) == ["n2", "n3", "n4"]
    assert "takes part in a pair test already" in pair_tests.problem(state, "n3", "")
    for name, took in (("n3", USUAL), ("n4", USUAL), ("n2", 13 * USUAL // 10)):
        story.answer(name, took, test="n2/pair/1")
    assert any("PairTestSlow" in name for name in story.node("n2").health.findings)
    story.tell(events.PairTestOrdered("n2", "", "ops"))
    for name in ("n3", "n4", "n2"):
        story.answer(name, test="n2/pair/2")
    assert not story.node("n2").health.findings


def test_where_there_is_no_partner_it_is_told_what_makes_one() -> None:
    """A node alone in its fleet, one among nodes with ranks, and one whose likes are not well."""
    story = PairStory(settings=ENFORCED).begin()
    state = story.core.state
    busy = pair_tests.problem(state, "n2", "")
    assert "ranks run on all 2 nodes like it" in busy
    assert "everstep drain n0 --reason TEXT" in busy
    other = replace(story.node("n2").spec.inventory, cpu_model="another")
    story.node("n2").spec = replace(story.node("n2").spec, inventory=other)
    assert "no other node has its accelerators" in pair_tests.problem(state, "n2", "")
    five = PairStory(nodes=4, settings=ENFORCED).begin()
    five.find("n3", replace(CLOCKS, mode=Mode.ENFORCE))
    assert "everstep check n2 --pair n3" in pair_tests.problem(five.core.state, "n2", "")
    assert pair_tests.problem(five.core.state, "n2", "n3") == ""


def test_an_order_by_hand_that_cannot_be_done_any_more_says_why() -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.tell(events.PairTestOrdered("n1", "", "ops"))
    result = story.node().pair.result
    assert result is not None
    assert "no job is stopped for it" in result.sentence
    assert story.node().pair.nominated_ns, "what automation wants of it stays"


def test_answers_of_others_of_another_test_and_twice_change_nothing() -> None:
    story = PairStory(nodes=6, settings=ENFORCED).begin()
    story.stop()
    running = story.node().pair.running
    assert running is not None
    assert running.partners == ["n0", "n2"]
    slow = 12 * USUAL // 10
    for name, test in (("n4", "n1/pair/1"), ("n1", "n1/pair/2"), ("n0", "n0/pair/1"), ("n1", "")):
        story.answer(name, slow, test=test)
    assert running.answers == {}
    story.answer("n1")
    story.answer("n0", 10 * USUAL)
    story.answer("n0")  # its agent was restarted, and did the work again
    story.answer("n2")
    result = story.node().pair.result
    assert result is not None
    assert result.outcome is PairOutcome.EQUAL
    story.answer("n1", slow)
    assert not story.is_slow()


@pytest.mark.parametrize("took", [0, 1, 10**18])
def test_rounds_that_no_work_takes_make_no_node_slow(took: int) -> None:
    """A partner that tells nonsense agrees with nobody."""
    story = PairStory(nodes=6, settings=ENFORCED).begin()
    story.stop()
    story.answer("n0", took)
    story.answer("n2")
    story.answer("n1", 12 * USUAL // 10)
    assert not story.is_slow()


def test_a_removed_node_leaves_its_partners_free() -> None:
    story = PairStory(nodes=5, settings=ENFORCED).begin()
    story.tell(events.PairTestOrdered("n2", "n3", "ops"))
    del story.core.state.nodes["n2"]
    assert pair_tests.problem(story.core.state, "n3", "n4") == ""


def test_a_partner_of_a_removed_node_is_heard_in_a_test_of_its_own() -> None:
    story = PairStory(nodes=6, settings=ENFORCED).begin()
    story.tell(events.PairTestOrdered("n2", "n3", "ops"))
    story.lose("n2")
    story.tell(events.NodeRemoved("n2", "ops", "sold"))
    story.tell(events.PairTestOrdered("n3", "n4", "ops"))
    running = story.node("n3").pair.running
    assert running is not None
    for name in ("n3", *running.partners):
        story.answer(name, test=running.id)
    result = story.node("n3").pair.result
    assert result is not None
    assert result.outcome is PairOutcome.EQUAL


def test_every_interrupted_prefix_ends_as_the_whole() -> None:
    """A controller that is killed between any two events decides the same, and asks again."""
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.finish(12 * USUAL // 10)
    whole = encode(story.core.state)
    core = Core()
    for event, now_ns in _journal(story):
        core = Core(decode_state(encode(core.state)))
        waiting = {one.node for one in core.due(now_ns) if isinstance(one, actions.RunPairTest)}
        running = core.state.nodes["n1"].pair.running if "n1" in core.state.nodes else None
        expected = {"n1", *running.partners} - set(running.answers) if running else set()
        assert waiting == expected
        core.handle(event, now_ns)
    assert encode(core.state) == whole


def _journal(story: PairStory) -> list[tuple[events.Event, int]]:
    return story.told


def test_orders_and_results_are_journaled_and_older_snapshots_are_read() -> None:
    ordered = events.PairTestOrdered("n1", "n2", "ops")
    assert decode_event("PairTestOrdered", encode(ordered)) == ordered
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.answer("n0")
    assert decode_state(encode(story.core.state)) == story.core.state
    story.answer("n2")
    story.answer("n1", 2 * USUAL)
    assert decode_state(encode(story.core.state)) == story.core.state
    snapshot = json.loads(encode(story.core.state))
    del snapshot["nodes"]["n1"]["pair"]
    older = decode_state(json.dumps(snapshot).encode())
    assert older.nodes["n1"].pair == PairRecord()


@pytest.mark.parametrize("took", [USUAL, 12 * USUAL // 10])
def test_a_controller_away_meanwhile_takes_the_answers_when_it_is_back(took: int) -> None:
    story = PairStory(settings=ENFORCED).begin()
    story.stop()
    story.core = Core(decode_state(encode(story.core.state)))
    assert story.asked() == ["n0", "n1", "n2"]
    story.finish(took)
    assert story.is_slow() is (took > USUAL)
    assert story.state_of_job() is JobState.REPLANNING
