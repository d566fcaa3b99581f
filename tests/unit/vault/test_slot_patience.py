"""How long a rank waits for a slot: once for each recoverable step, and as long as slots take."""

from everstep_agent.vault.snapshots.cadence import Cadence, CadenceRule
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_agent.vault.snapshots.slot_patience import (
    SlotTurnover,
    VainWait,
    summarize_turnover,
)
from everstep_agent.vault.snapshots.slots import SlotState, SnapshotSlot
from everstep_common.reports import Turnover


def test_what_can_never_become_recoverable_is_freed_and_allows_no_other_wait() -> None:
    rule = CadenceRule()
    vain = VainWait.under(Recoverable(1, 7), rule, "no slot was free")
    assert vain.holds(Recoverable(1, 7, frozenset({8, 9})), rule)
    assert not vain.holds(Recoverable(1, 10, frozenset({8, 9})), rule)
    assert not vain.holds(Recoverable(2, 7), rule)
    assert not VainWait().holds(Recoverable(), rule)


def test_where_the_cadence_has_all_ranks_save_a_step_each_may_wait_anew() -> None:
    cadence = Cadence().with_rule(1, CadenceRule(12, 4))
    vain = VainWait.under(Recoverable(1, 7), cadence.rule_of(1, 11), "no slot was free")
    assert not vain.holds(Recoverable(1, 7), cadence.rule_of(1, 12))
    again = VainWait.under(Recoverable(1, 7), cadence.rule_of(1, 12), "no slot was free")
    assert again.holds(Recoverable(1, 7), cadence.rule_of(1, 16))


def test_a_wait_is_bounded_by_what_slots_took_lately() -> None:
    turnover = SlotTurnover()
    assert turnover.bound_wait_s(5.0) == 5.0
    slot = SnapshotSlot(0, SlotState.COMMITTED, epoch=3, step=1)
    turnover.record_commit(3, 10.0)
    turnover.record_slots([slot], 10.5)
    assert not turnover.times_s
    slot.state = SlotState.EMPTY
    turnover.record_slots([slot], 10.8)
    assert list(turnover.times_s) == [10.8 - 10.0]
    assert turnover.bound_wait_s(5.0) == 4 * (10.8 - 10.0)
    assert turnover.bound_wait_s(1.0) == 1.0


def test_a_short_turnover_leaves_a_wait_that_outlasts_chance() -> None:
    turnover = SlotTurnover()
    turnover.record_commit(3, 10.0)
    turnover.record_slots([], 10.01)
    assert turnover.bound_wait_s(5.0) == 0.5


def test_a_node_tells_the_median_of_all_its_ranks_and_the_slowest_but_one_in_a_hundred() -> None:
    fast, slow = SlotTurnover(), SlotTurnover()
    for epoch in range(40):
        fast.record_commit(epoch, 0.0)
        fast.record_slots([], 0.1)
    for epoch in range(60):
        slow.record_commit(epoch, 0.0)
        slow.record_slots([], 0.2 if epoch else 9.0)
    assert summarize_turnover(3, [fast, slow]) == Turnover(3, 200_000_000, 200_000_000)
    assert summarize_turnover(3, [SlotTurnover()]) is None
