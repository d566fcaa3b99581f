"""Which steps are snapshotted: all ranks take the same, whenever each of them hears of it."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.snapshots.cadence import (
    Cadence,
    CadenceRule,
    ExpiredHold,
    PollPace,
    StepHold,
    next_snapshot_step,
)

_RULES = st.lists(st.builds(CadenceRule, st.integers(0, 60), st.integers(1, 7)), max_size=5)


def _steps(cadence: Cadence, last: int, generation: int = 1) -> list[int]:
    """Return the steps that a rank saves that is told the next one each time."""
    found, step = [], cadence.next_step(generation, 0)
    while step <= last:
        found.append(step)
        step = cadence.next_step(generation, step + 1)
    return found


def _told(rules: list[CadenceRule], generation: int = 1) -> Cadence:
    cadence = Cadence()
    for rule in rules:
        cadence = cadence.with_rule(generation, rule)
    return cadence


def test_before_anything_is_said_every_step_is_taken() -> None:
    assert _steps(Cadence(), 4) == [0, 1, 2, 3, 4]


def test_a_rank_behind_the_new_rule_follows_the_one_before() -> None:
    cadence = _told([CadenceRule(0, 2), CadenceRule(7, 5)])
    assert _steps(cadence, 20) == [0, 2, 4, 6, 10, 15, 20]


def test_a_rule_that_is_replaced_before_it_began_never_was() -> None:
    assert _told([CadenceRule(0, 2), CadenceRule(50, 5), CadenceRule(40, 3)]) == _told(
        [CadenceRule(0, 2), CadenceRule(40, 3)]
    )


def test_the_same_rule_said_again_from_a_later_step_changes_nothing() -> None:
    assert _told([CadenceRule(0, 4), CadenceRule(90, 4)]) == _told([CadenceRule(0, 4)])


def test_a_new_generation_begins_with_every_step() -> None:
    cadence = _told([CadenceRule(0, 4)])
    assert cadence.next_step(2, 1) == 1
    assert _steps(cadence.with_rule(2, CadenceRule(3, 2)), 8, generation=2) == [0, 1, 2, 4, 6, 8]


@given(_RULES, st.lists(st.integers(0, 5), min_size=2, max_size=4))
def test_ranks_that_hear_of_a_rule_before_it_begins_take_the_same_steps(
    rules: list[CadenceRule], heard_after: list[int]
) -> None:
    """Each rank hears of rule i when it has reached some step before the start of rule i."""
    starts = sorted(rule.start for rule in rules)
    rules = [CadenceRule(start, rule.every) for start, rule in zip(starts, rules, strict=True)]
    expected = _steps(_told(rules), 80)
    for early in heard_after:
        cadence, taken = Cadence(), []
        for step in range(81):
            for rule in rules:
                if step == max(0, rule.start - early):
                    cadence = cadence.with_rule(1, rule)
            if cadence.next_step(1, step) == step:
                taken.append(step)
        assert taken == expected


@given(_RULES, st.integers(0, 80))
def test_the_next_step_is_the_first_that_would_not_be_sent_on(
    rules: list[CadenceRule], step: int
) -> None:
    cadence = _told(rules)
    found = cadence.next_step(1, step)
    assert found >= step
    assert [s for s in range(step, found + 1) if cadence.next_step(1, s) == s] == [found]


def test_a_planned_restart_adds_its_step_to_the_cadence_and_to_no_other_generation() -> None:
    tenth, hold = _told([CadenceRule(0, 10)]), StepHold(1, 13)
    assert [next_snapshot_step(tenth, hold, 1, step) for step in (9, 10, 11, 13, 14)] == [
        10, 10, 13, 13, 20,
    ]  # fmt: skip
    assert next_snapshot_step(tenth, None, 1, 11) == 20
    assert next_snapshot_step(_told([CadenceRule(0, 10)], 2), hold, 2, 11) == 20
    assert hold.is_last_step(1, 13)
    assert not hold.is_last_step(2, 13)


def test_ranks_wait_after_the_planned_step_and_once_more_where_it_was_missed() -> None:
    tenth, hold = _told([CadenceRule(0, 10)]), StepHold(1, 13)
    assert ExpiredHold().last_step(hold, 1) == 13
    assert ExpiredHold().last_step(hold, 2) is None
    assert ExpiredHold().last_step(None, 1) is None
    once = ExpiredHold().in_vain(tenth, hold, 14)
    assert once.last_step(hold, 1) == 20
    assert once.in_vain(tenth, hold, 21).last_step(hold, 1) is None
    assert ExpiredHold().in_vain(Cadence(1), hold, 14).last_step(hold, 1) is None
    assert once.last_step(StepHold(1, 40), 1) == 40


def test_a_rank_asks_again_within_two_seconds_once_its_pace_is_known() -> None:
    pace, step, at_s = PollPace(), 0, 100.0
    asked = []
    while step < 2000:
        pace = pace.after_question(step, at_s)
        asked.append(pace.ahead)
        step, at_s = step + pace.ahead, at_s + pace.ahead * 0.01
    assert asked[:4] == [1, 2, 4, 8]
    assert max(asked) * 0.01 <= 2
    slower = pace.after_question(step + 100, at_s + 1000)
    assert slower.ahead == 1


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1000)), max_size=30))
def test_a_rank_is_never_told_to_ask_again_now_or_before(
    questions: list[tuple[int, float]],
) -> None:
    pace, step, at_s = PollPace(), 0, 0.0
    for steps, seconds in questions:
        step, at_s = step + steps, at_s + seconds
        pace = pace.after_question(step, at_s)
        assert pace.ahead >= 1


def test_members_that_thin_out_by_themselves_keep_the_steps_of_the_one_that_takes_fewest() -> None:
    seldom = often = _told([CadenceRule(0, 3)])
    for step in (6, 12, 24):
        seldom = seldom.thinned(1, step)
    often = often.thinned(1, 9)
    assert _steps(seldom, 72) == [0, 3, 6, 12, 24, 48, 72]
    assert set(_steps(often, 72)) >= set(_steps(seldom, 72)) - {3, 6, 9}
    # One that has not begun is not thinned further, and nothing is known of another generation.
    assert seldom.thinned(1, 20) == seldom
    assert seldom.thinned(2, 4) == Cadence(2, (CadenceRule(0, 1), CadenceRule(5, 2)))
