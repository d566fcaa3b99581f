"""Slow time: the excess of steps goes to what judges found, and none is lost or doubled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.accounting.categories import Category, Group
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.accounting.slow_time import SlowTime, slow_time

S = 1_000_000_000
NODE = slow_time([1.5], [])


def _run(steps: int = 0, step_s: float = 1.0) -> Ledger:
    ledger = Ledger(0, nodes=2)
    ledger.enter(0, Category.INIT_QUEUE)
    ledger.begin_steps(0, warmup=False)
    _make(ledger, steps, step_s)
    return ledger


def _make(ledger: Ledger, steps: int, step_s: float) -> None:
    at_ns = ledger.steps[-1].end_ns if ledger.steps else 0
    first = ledger.steps[-1].step + 1 if ledger.steps else 0
    for number in range(steps):
        ledger.commit_step(first + number, at_ns + round((number + 1) * step_s * S), 0)


def _told(ledger: Ledger) -> dict[Category, float]:
    now_ns = ledger.steps[-1].end_ns
    totals = ledger.totals(now_ns)
    assert sum(totals.values()) == now_ns
    assert sum(ledger.node_totals(now_ns).values()) == 2 * now_ns
    return {one: ns / S for one, ns in totals.items()}


@pytest.mark.parametrize(
    ("causes", "category"),
    [
        ([], Category.SLOW),
        (["data"], Category.SLOW_DATA),
        (["stage"], Category.SLOW_STAGE),
        (["pauses"], Category.SLOW_PAUSES),
        (["a cause of a newer version"], Category.SLOW),
    ],
)
def test_excess_goes_to_what_was_found_also_that_of_before(
    causes: list[str], category: Category
) -> None:
    ledger = _run(200)
    _make(ledger, 1, 3.0)  # folded by now
    _make(ledger, 300, 1.0)
    _make(ledger, 1, 3.0)
    ledger.attribute(slow_time([], causes))
    _make(ledger, 1, 3.0)
    assert _told(ledger) == {Category.PRODUCTIVE: 503, category: 6}


def test_a_slow_node_is_measured_by_the_steps_of_before_it() -> None:
    ledger = _run(120)
    began_ns = 120 * S
    _make(ledger, 200, 1.5)  # the reference has followed it by now
    ledger.attribute(NODE, began_ns)
    assert _told(ledger) == {Category.PRODUCTIVE: 320, Category.SLOW_NODE: 100}
    _make(ledger, 1000, 1.5)
    assert _told(ledger) == {Category.PRODUCTIVE: 1320, Category.SLOW_NODE: 600}
    ledger.attribute(SlowTime(), ledger.steps[-1].end_ns)
    _make(ledger, 10, 1.0)
    assert _told(ledger) == {Category.PRODUCTIVE: 1330, Category.SLOW_NODE: 600}


def test_a_pause_while_a_node_is_slow_is_a_pause() -> None:
    ledger = _run(120)
    ledger.attribute(slow_time([1.5], ["pauses"]), 120 * S)
    _make(ledger, 10, 1.5)
    _make(ledger, 1, 11.0)
    assert _told(ledger) == {
        Category.PRODUCTIVE: 131,
        Category.SLOW_NODE: 5,
        Category.SLOW_PAUSES: 10,
    }


def test_what_a_node_was_found_for_is_not_taken_back_by_another_cause() -> None:
    ledger = _run(120)
    _make(ledger, 20, 1.5)
    ledger.attribute(NODE, 120 * S)
    ledger.attribute(slow_time([], ["data"]))
    assert _told(ledger) == {Category.PRODUCTIVE: 140, Category.SLOW_NODE: 10}


def test_another_run_of_steps_begins_with_nothing_found() -> None:
    ledger = _run(120)
    ledger.attribute(NODE, 120 * S)
    ledger.enter(130 * S, Category.INIT)
    ledger.begin_steps(140 * S, warmup=False)
    for step in range(120, 140):
        ledger.commit_step(step, (140 + 2 * (step - 119)) * S, 0)
    ledger.attribute(SlowTime(Category.SLOW_DATA))
    assert ledger.totals(180 * S)[Category.PRODUCTIVE] == (120 + 40) * S


_PACES = st.lists(
    st.tuples(
        st.integers(1, 60),
        st.floats(0.5, 4.0),
        st.sampled_from([(), ("data",), ("stage",), ("pauses",), ("pauses", "data"), None]),
        st.floats(0, 1),
    ),
    max_size=12,
)


@given(_PACES)
def test_whatever_is_found_when_the_time_stays_the_same(
    paces: list[tuple[int, float, tuple[str, ...] | None, float]],
) -> None:
    ledger = _run(10)
    for steps, step_s, causes, back in paces:
        _make(ledger, steps, step_s)
        now_ns = ledger.steps[-1].end_ns
        if causes is None:
            ledger.attribute(slow_time([step_s], []), round(now_ns * back))
        else:
            ledger.attribute(slow_time([], causes))
        told = _told(ledger)
        assert all(amount >= 0 for amount in told.values())
        made = (Group.PRODUCTIVE, Group.SLOW)
        assert sum(one for category, one in told.items() if category.group in made) == (
            pytest.approx(now_ns / S)
        )


def test_time_that_nobody_tells_of_while_the_controller_was_away_is_unknown() -> None:
    ledger = _run(20)
    ledger.note_absence(21 * S, 500 * S)
    ledger.record_fault(400 * S, 510 * S, "j.1", "node")
    ledger.enter(520 * S, Category.DRAIN)
    assert ledger.totals(600 * S) == {
        Category.PRODUCTIVE: 20 * S,
        Category.LOST_IN_FLIGHT: 1 * S,
        Category.UNKNOWN: 379 * S,
        Category.DETECT: 110 * S,
        Category.DIAGNOSE: 10 * S,
        Category.DRAIN: 80 * S,
    }


def test_steps_that_are_told_later_cover_the_absence() -> None:
    ledger = _run(20)
    ledger.note_absence(21 * S, 500 * S)
    _make(ledger, 460, 1.0)
    assert _told(ledger) == {Category.PRODUCTIVE: 480}
    ledger.close(481 * S)
    assert Category.UNKNOWN not in ledger.totals(481 * S)


def test_a_job_that_ended_meanwhile_without_a_word_has_unknown_time() -> None:
    ledger = _run(20)
    ledger.note_absence(21 * S, 500 * S)
    ledger.close(510 * S)
    assert ledger.totals(510 * S) == {
        Category.PRODUCTIVE: 20 * S,
        Category.GAP: 11 * S,
        Category.UNKNOWN: 479 * S,
    }


def test_a_second_slow_node_is_measured_by_the_steps_without_the_first() -> None:
    ledger = _run(120)
    for _ in range(2):
        began_ns = ledger.steps[-1].end_ns
        _make(ledger, 150, 1.5)
        ledger.attribute(NODE, began_ns)
        ledger.attribute(SlowTime(), ledger.steps[-1].end_ns)
        _make(ledger, 20, 1.0)
    assert _told(ledger) == {Category.PRODUCTIVE: 460, Category.SLOW_NODE: 150}


def test_the_first_steps_on_a_slow_node_go_to_it_however_the_reference_was_then() -> None:
    ledger = _run(0)
    paces = (1.0, 1.02, 0.98, 1.01, 0.99)
    for number in range(150):
        _make(ledger, 1, paces[number % 5])
    began_ns = ledger.steps[-1].end_ns
    _make(ledger, 30, 1.6)
    ledger.attribute(NODE, began_ns)
    before = ledger.totals(began_ns)
    assert _told(ledger)[Category.SLOW_NODE] == pytest.approx(30 * 0.6)
    assert before[Category.SLOW] < S * 2
