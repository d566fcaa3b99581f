"""Hours of a timeline: what a job's time went to in each, whenever that is asked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.accounting.timeline import HOUR_NS, HOURS_KEPT, HourMark

S = 1_000_000_000
# A job is on the clock of the wall: it does not begin with an hour.
START = 1_769_817_600 * S + 1234 * S + 567


def _job(nodes: int = 4) -> Ledger:
    ledger = Ledger(START, nodes=nodes)
    ledger.enter(START, Category.INIT_QUEUE)
    ledger.begin_steps(START + 60 * S, warmup=False)
    return ledger


def _checked(ledger: Ledger, now_ns: int) -> list[HourMark]:
    """Return its hours, each of which sums up to the time since the start."""
    marks = list(ledger.hours(now_ns))
    for mark in marks:
        assert sum(mark.totals.values()) == mark.until_ns - START
    assert [mark.begin_ns for mark in marks] == sorted({mark.begin_ns for mark in marks})
    return marks


def test_each_hour_ends_where_the_clock_says_and_the_last_one_now() -> None:
    ledger = _job()
    for step in range(200):
        ledger.commit_step(step, START + (60 + 100 * (step + 1)) * S, 0)
    now_ns = START + 20_070 * S
    marks = _checked(ledger, now_ns)
    assert [mark.until_ns % HOUR_NS for mark in marks[:-1]] == [0] * (len(marks) - 1)
    assert marks[-1].until_ns == now_ns
    assert {mark.nodes for mark in marks} == {4}
    assert marks[-1].node_ns[Category.PRODUCTIVE] == 4 * 20_000 * S


def test_an_hour_in_which_nothing_happened_is_told_as_well() -> None:
    ledger = Ledger(START, nodes=2)
    ledger.enter(START, Category.INIT_QUEUE)
    ledger.enter(START + 5 * S, Category.CAPACITY)
    marks = _checked(ledger, START + 5 * 3600 * S)
    assert len(marks) == 6
    told = [mark.totals[Category.CAPACITY] for mark in marks]
    assert [later - before for before, later in pairwise(told)][:4] == [HOUR_NS] * 4


def test_what_is_marked_stays_as_it_is_and_what_is_taken_back_counts_when_it_is() -> None:
    ledger = _job()
    for step in range(100):
        ledger.commit_step(step, START + (60 + 100 * (step + 1)) * S, 0)
    before = ledger.marks[:]
    ledger.roll_back(9)
    assert ledger.marks[: len(before)] == before
    last = _checked(ledger, START + 10_100 * S)[-1]
    assert last.totals[Category.PRODUCTIVE] == 1000 * S
    assert last.totals[Category.LOST_RECOMPUTE] == 9000 * S
    assert last.node_ns[Category.LOST_RECOMPUTE] == 4 * 9000 * S


def test_time_weighs_with_the_nodes_that_the_job_had_then() -> None:
    ledger = _job(nodes=4)
    ledger.commit_step(0, START + 1000 * S, 0)
    ledger.nodes = 3
    ledger.enter(START + 1000 * S, Category.INIT)
    ledger.begin_steps(START + 1100 * S, warmup=False)
    ledger.commit_step(1, START + 4100 * S, 0)
    (*_, last) = _checked(ledger, START + 4100 * S)
    assert last.node_ns == {
        Category.INIT_QUEUE: 4 * 60 * S,
        Category.PRODUCTIVE: 4 * 940 * S + 3 * 3000 * S,
        Category.INIT: 3 * 100 * S,
    }
    assert ledger.node_totals(START + 4100 * S) == last.node_ns


def test_of_an_older_version_all_time_is_of_the_nodes_of_now() -> None:
    ledger = _job(nodes=0)
    for step in range(50):
        ledger.commit_step(step, START + (60 + 100 * (step + 1)) * S, 0)
    ledger.weigh(8)
    now_ns = START + 6000 * S
    weighed = {one: 8 * ns for one, ns in ledger.totals(now_ns).items()}
    assert ledger.node_totals(now_ns) == weighed


def test_a_job_that_has_ended_has_its_last_hour_until_then() -> None:
    ledger = _job()
    ledger.commit_step(0, START + 4000 * S, 0)
    ledger.close(START + 4100 * S)
    first = _checked(ledger, START + 4200 * S)
    assert first[-1].until_ns == START + 4100 * S
    assert _checked(ledger, START + 99_000 * S) == first


def test_of_more_than_a_day_the_newest_hours_are_kept() -> None:
    ledger = _job()
    for step in range(500):
        ledger.commit_step(step, START + (60 + 300 * (step + 1)) * S, 0)
    assert len(ledger.marks) == HOURS_KEPT
    (last, *_) = reversed(ledger.marks)
    assert (
        list(ledger.hours(START + 150_060 * S, last.until_ns))
        == (list(ledger.hours(START + 150_060 * S))[HOURS_KEPT:])
    )


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["step", "fault", "back", "nodes", "restart"]), st.integers(1, 5000)),
    max_size=60,
)


@given(_EVENTS)
def test_whatever_happens_each_hour_sums_up_and_no_sum_is_lost(
    events: list[tuple[str, int]],
) -> None:
    ledger, now_ns, step, marked = _job(), START + 60 * S, 0, dict[int, HourMark]()
    for number, (kind, seconds) in enumerate(events):
        now_ns += seconds * S
        if kind == "step":
            ledger.commit_step(step, now_ns, stall_ns=S // 10)
            step += 1
        elif kind == "fault":
            ledger.record_fault(now_ns - 90 * S, now_ns, f"j.{number}", "node")
            ledger.enter(now_ns, Category.DRAIN)
        elif kind == "back":
            step = max(0, step - 5)
            ledger.roll_back(step - 1)
        elif kind == "nodes":
            ledger.nodes = 1 + seconds % 8
            ledger.enter(now_ns, Category.SCHEDULE)
        else:
            ledger.begin_steps(now_ns, warmup=True)
        _checked(ledger, now_ns)
        for mark in ledger.marks:  # what is marked is never told otherwise
            assert marked.setdefault(mark.until_ns, mark) == mark
    assert sum(ledger.totals(now_ns).values()) == ledger.wall_ns(now_ns)
    assert ledger.totals(now_ns) == list(ledger.hours(now_ns))[-1].totals


@pytest.mark.parametrize("nodes", [1, 7])
def test_the_cost_of_an_incident_weighs_as_well(nodes: int) -> None:
    ledger = _job(nodes)
    ledger.commit_step(0, START + 100 * S, 0)
    ledger.record_fault(START + 110 * S, START + 120 * S, "j.1", "node")
    ledger.enter(START + 130 * S, Category.DRAIN)
    now_ns = START + 9000 * S
    assert ledger.node_totals(now_ns, "j.1") == {
        one: nodes * ns for one, ns in ledger.totals(now_ns, "j.1").items()
    }
    ledger.forget_incident("j.1")
    assert sum(ledger.node_totals(now_ns).values()) == nodes * ledger.wall_ns(now_ns)
