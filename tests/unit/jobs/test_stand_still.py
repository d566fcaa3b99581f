"""When an agent says that the ranks of a job stand still, and that they go on; in virtual time."""

import random

import pytest

from everstep_agent.jobs.standing.stand_still import FIRST_STEPS, GAPS_MAX, StandStill, StepGaps
from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import RanksGoOn, RanksStandStill

_S = 10**9
_RANKS = (4, 5)


class Node:
    """A node whose judge is asked every second."""

    def __init__(self, *, unsure: bool = False) -> None:
        self.judge = StandStill()
        self.judge.begin(1, _RANKS, unsure=unsure)
        self.now_ns, self.step = 1000 * _S, 0
        self.told: list[RanksStandStill | RanksGoOn] = []

    def steps(self, gaps_s: list[float]) -> None:
        """Let all ranks complete steps after these gaps."""
        for gap_s in gaps_s:
            self.wait(gap_s)
            for rank in _RANKS:
                self.judge.add_step(rank, self.step, self.now_ns)
            self.step += 1
            self.ask()

    def wait(self, seconds: float, **watched: object) -> None:
        """Let time pass; with ``watched``, the launcher tells the same every second."""
        end_ns = self.now_ns + int(seconds * _S)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + _S, end_ns)
            if watched:
                self.watch(**watched)
            self.ask()

    def watch(self, **watched: object) -> None:
        message = RanksWatched(generation=1, at_boot_ns=self.now_ns, **watched)  # type: ignore[arg-type]
        self.judge.add_watched(message, self.now_ns)

    def ask(self) -> None:
        if (told := self.judge.judge(self.now_ns)) is not None:
            self.told.append(told)

    def still(self) -> list[RanksStandStill]:
        return [one for one in self.told if isinstance(one, RanksStandStill)]


def test_without_collectives_the_gap_between_steps_decides_and_it_is_said() -> None:
    node = Node()
    node.steps([1.0] * 30)
    began_ns = node.now_ns
    node.wait(3)
    assert not node.told
    node.wait(1)
    (still,) = node.still()
    assert (still.generation, still.step, still.since_boot_ns) == (1, 29, began_ns)
    assert still.usual_ns == 3 * _S
    assert still.blind == "the launcher tells nothing of the ranks' collectives"
    node.wait(600)
    assert len(node.told) == 1


def test_what_a_launcher_calls_young_is_told_so_and_again_when_more_was_learned() -> None:
    node = Node()
    node.wait(2)
    since_ns = node.now_ns
    node.wait(20, still_since_ns=since_ns, usual_ns=3 * _S, young=True)
    node.wait(20, still_since_ns=since_ns, usual_ns=15 * _S)
    assert [(one.young, one.usual_ns // _S) for one in node.still()] == [(True, 3), (False, 15)]
    node.wait(2, still_since_ns=since_ns, usual_ns=15 * _S)
    assert len(node.told) == 2


def test_a_node_that_sees_no_move_of_its_ranks_says_so_once_and_takes_it_back() -> None:
    node = Node()
    node.wait(10, blind="no rank has a recorder")
    assert not node.told
    node.wait(600, blind="no rank has a recorder")
    (still,) = node.still()
    assert (still.step, still.blind, still.young) == (None, "no rank has a recorder", True)
    assert len(node.told) == 1
    # Collectives are recorded after all, and move.
    node.wait(2)
    node.watch(blind="")
    node.ask()
    assert isinstance(node.told[-1], RanksGoOn)


def test_a_node_whose_launcher_is_silent_or_whose_ranks_tell_steps_does_not_say_so() -> None:
    silent = Node()
    silent.wait(600)
    assert not silent.told
    steps = Node()
    for _ in range(20):
        steps.watch(blind="no rank has a recorder")
        steps.steps([1.0])
    assert not steps.told


@pytest.mark.parametrize("seed", range(30))
def test_steps_of_any_length_that_vary_as_they_did_are_not_a_stand(seed: int) -> None:
    chance = random.Random(seed)
    usual_s = chance.uniform(0.05, 30.0)
    gaps = [usual_s * chance.uniform(0.8, 1.2) for _ in range(300)]
    node = Node()
    node.steps(gaps)
    assert not node.told
    node.wait(max(3.0, 1.5 * 1.2 * usual_s) + 1)
    (still,) = node.still()
    assert still.usual_ns >= 1.4 * usual_s * _S or still.usual_ns == 3 * _S


def test_a_job_that_logs_every_hundredth_step_is_judged_by_what_it_logs() -> None:
    node = Node()
    for _ in range(40):
        node.step += 99
        node.steps([10.0])
    node.wait(14)
    assert not node.told
    node.wait(2)
    assert len(node.told) == 1


def test_a_stand_that_ended_well_makes_nobody_wait_longer_for_the_next_one() -> None:
    node = Node()
    node.steps([0.5] * 30)
    node.steps([60.0])  # an evaluation of which nobody said anything
    assert [type(one) for one in node.told] == [RanksStandStill, RanksGoOn]
    node.steps([0.5] * 100)
    node.steps([65.0])
    assert len(node.told) == 4
    node.steps([0.5] * 100)
    node.wait(4)
    assert [one.usual_ns for one in node.still()] == [3 * _S] * 3


def test_a_stand_in_every_few_steps_is_their_rhythm() -> None:
    node = Node()
    node.steps([0.5] * 30)
    node.steps(([0.5] * 9 + [10.0]) * 20)
    assert len(node.still()) == 3
    node.wait(14)
    assert len(node.still()) == 3
    node.wait(2)
    assert len(node.still()) == 4


def test_nothing_is_judged_in_the_first_steps() -> None:
    node = Node()
    node.steps([1.0] * FIRST_STEPS)
    node.wait(600)
    assert not node.told


@pytest.mark.parametrize(("gap_s", "usual_s"), [(0.3, 10), (2.0, 20)])
def test_a_stand_after_a_few_steps_is_told_as_one_of_which_little_was_learned(
    gap_s: float, usual_s: int
) -> None:
    node = Node()
    node.steps([gap_s] * (FIRST_STEPS + 5))
    node.wait(usual_s - 1)
    assert not node.told
    node.wait(3)
    (still,) = node.still()
    assert (still.young, still.usual_ns // _S) == (True, usual_s)
    node.wait(600)
    assert len(node.told) == 1


def test_a_few_steps_of_which_one_was_long_make_no_stand_of_the_next_long_one() -> None:
    node = Node()
    node.steps([0.3] * (FIRST_STEPS + 2) + [6.0, 0.3, 40.0, 0.3])
    assert not node.told


def test_one_rank_that_has_told_of_no_step_leaves_nothing_to_judge() -> None:
    node = Node()
    for step in range(40):
        node.wait(1)
        node.judge.add_step(4, step, node.now_ns)
    node.wait(600)
    assert not node.told


def test_a_pause_of_one_rank_is_not_judged_and_teaches_nothing() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.judge.add_pause(5, "evaluation")
    node.wait(300)
    node.judge.add_pause(5, "")
    node.steps([2.0])
    assert not node.told
    node.wait(4)
    assert node.still()[0].usual_ns == 3 * _S


def test_a_pause_ends_with_the_process_that_declared_it() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.judge.add_pause(5, "evaluation")
    node.wait(300)
    node.judge.end_pause(5)
    node.wait(4)
    assert node.still()


def test_a_pause_after_a_stand_was_told_says_that_they_go_on() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.wait(10)
    node.judge.add_pause(4, "save")
    node.ask()
    assert isinstance(node.told[-1], RanksGoOn)


def test_collectives_that_go_on_are_no_stand_however_long_a_step_takes() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.wait(600, usual_ns=3 * _S)
    assert not node.told


def test_collectives_that_stand_still_are_told_whether_steps_are_known_or_not() -> None:
    node = Node()
    node.ask()
    since_ns = node.now_ns
    node.wait(10, still_since_ns=since_ns, usual_ns=4 * _S)
    (still,) = node.still()
    assert (still.step, still.since_boot_ns) == (None, since_ns)
    assert (still.usual_ns, still.blind) == (4 * _S, "")
    node.wait(1, usual_ns=4 * _S)
    assert isinstance(node.told[-1], RanksGoOn)


def test_a_launcher_that_contradicts_itself_is_journaled_once_a_minute() -> None:
    node = Node()
    for _ in range(36_000):
        node.now_ns += _S // 10
        node.watch(still_since_ns=1, usual_ns=1)
        node.ask()
        node.watch(usual_ns=1)
        node.ask()
    assert len(node.told) <= 2 * (16 + 60), "in an hour"


def test_a_step_that_was_completed_after_the_last_collective_counts() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.wait(2, still_since_ns=node.now_ns - 10 * _S, usual_ns=3 * _S)
    assert not node.told
    node.wait(2, still_since_ns=node.now_ns - 10 * _S, usual_ns=3 * _S)
    assert node.told


def test_where_the_recorder_is_blind_its_reason_is_told() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.wait(5, blind="12 steps passed without a collective")
    assert node.still()[0].blind == "12 steps passed without a collective"


def test_a_launcher_that_falls_silent_leaves_steps_to_decide() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.watch(usual_ns=3 * _S)
    node.wait(15)
    assert not node.told
    node.wait(2)
    assert "told nothing" in node.still()[0].blind


def test_a_launcher_that_falls_silent_after_a_stand_does_not_end_it() -> None:
    node = Node()
    node.wait(5, still_since_ns=node.now_ns, usual_ns=3 * _S)
    node.wait(60)
    assert len(node.told) == 1


def test_what_a_launcher_tells_of_another_generation_is_left_out() -> None:
    node = Node()
    told = RanksWatched(generation=2, at_boot_ns=1, still_since_ns=1, usual_ns=1)
    node.judge.add_watched(told, node.now_ns)
    node.wait(60)
    assert not node.told


def test_a_node_that_was_suspended_did_not_stand_still() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.now_ns += 3600 * _S
    node.ask()
    node.wait(2)
    assert not node.told


def test_an_agent_that_had_no_processor_takes_no_stand_back_in_which_nothing_moved() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.watch(usual_ns=3 * _S)
    node.wait(20)
    assert len(node.told) == 1
    node.now_ns += 18 * _S
    node.wait(30)
    assert len(node.told) == 1
    node.now_ns += 18 * _S
    node.steps([0.1])
    assert isinstance(node.told[-1], RanksGoOn)


def test_ranks_that_end_do_not_stand_still() -> None:
    node = Node()
    node.steps([1.0] * 30)
    node.judge.end()
    node.wait(600)
    assert not node.told


def test_an_agent_that_was_restarted_says_once_how_it_is() -> None:
    node = Node(unsure=True)
    node.wait(10)
    assert not node.told
    node.steps([1.0] * 3)
    assert [type(one) for one in node.told] == [RanksGoOn]
    other = Node(unsure=True)
    other.wait(5, still_since_ns=other.now_ns, usual_ns=3 * _S)
    assert [type(one) for one in other.told] == [RanksStandStill]


def test_the_newest_gaps_are_kept_and_the_first_left_out() -> None:
    gaps, at_ns = StepGaps(), 0
    for step in range(FIRST_STEPS + 2 * GAPS_MAX):
        at_ns += _S if step < FIRST_STEPS + GAPS_MAX else 2 * _S
        gaps.add(step, at_ns)
    assert gaps.count == GAPS_MAX
    assert (gaps.quantile_ns(0.0), gaps.quantile_ns(0.99)) == (2 * _S, 2 * _S)
    gaps.add(5, at_ns + _S)  # said twice
    assert gaps.quantile_ns(0.5) == 2 * _S


def test_how_far_each_rank_is_has_its_phase() -> None:
    node = Node()
    node.steps([1.0] * 10)
    node.watch(phases=("forward", "pause: save"), ranks=(4, 5), rank_phases=(0, 9))
    node.wait(2)
    first, second = node.judge.progress(node.now_ns)
    assert (first.rank, first.step, first.median_ms, first.p99_ms) == (4, 9, 1000, 1000)
    assert (first.since_ms, first.phase, second.phase) == (2000, "forward", "")


def test_what_each_rank_prints_itself_is_told_beside_the_steps_of_the_job() -> None:
    node = Node()
    node.watch(ranks=_RANKS, printed=(8, 8))
    node.steps([1.0] * 5)
    node.watch(ranks=_RANKS, printed=(13, 8))
    node.wait(20, ranks=_RANKS, printed=(13, 8))
    told = list(node.judge.progress(node.now_ns))
    assert [(one.step, one.printed, one.printed_ms) for one in told] == [
        (4, 12, 20_000),
        (4, 7, 25_000),
    ]
    node.judge.begin(2, _RANKS)
    assert {one.printed for one in node.judge.progress(node.now_ns)} == {None}


def test_what_was_printed_is_forgotten_when_ranks_begin_to_tell_their_steps_themselves() -> None:
    node = Node()
    node.watch(ranks=_RANKS, printed=(8, 0))
    node.watch(ranks=_RANKS)
    assert {one.printed for one in node.judge.progress(node.now_ns)} == {None}
