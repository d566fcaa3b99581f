"""The table of a job's snapshots says what is there, what would be restored, and why no other."""

from collections import Counter

from everstep_common.reports import Storage
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import BranchPoint, Cadence, StepKey
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.persistence import Persistence
from everstep_controller.core.vault.snapshot_table import (
    SnapshotStep,
    SnapshotTable,
    SnapshotView,
    StepState,
    age_ns,
    snapshot_steps,
    snapshot_table,
)
from unit.core.vault.vault_story import NODES, REACHABLE, S, copy, job, ring, stored


def _trained(steps: int) -> JobRecord:
    """Return a job that completed a step each second."""
    record = job(storage=Storage("/ckpt", every_steps=10))
    record.ledger.enter(0, Category.INIT_PROC)
    record.ledger.begin_steps(0, warmup=False)
    for number in range(steps):
        record.ledger.commit_step(number, (number + 1) * S, 0)
    record.lineage.last_step = steps - 1
    return record


def _table(
    record: JobRecord,
    catalogue: Catalogue,
    alive: tuple[str, ...] = NODES,
    planner: Persistence | None = None,
) -> SnapshotTable:
    """Return the table; its numbers, which are counted, must be those of its lines."""
    view = _view(record, catalogue, alive, planner)
    table = snapshot_table(view, tuple(snapshot_steps(view)))
    assert table.numbers.states == Counter(line.state for line in table.steps)
    return table


def _view(
    record: JobRecord,
    catalogue: Catalogue,
    alive: tuple[str, ...] = NODES,
    planner: Persistence | None = None,
) -> SnapshotView:
    found = catalogue.recoverable(record.generation.number, NODES, 3)
    reachable = {node: REACHABLE[node] for node in alive}
    return SnapshotView(
        record,
        catalogue,
        reachable,
        found.step,
        planner or Persistence(),
        Cadence(),
        None,
        0,
        10,
        now_ns=20 * S,
    )


def _states(table: SnapshotTable) -> dict[StepKey, StepState]:
    return {(step.generation, step.step): step.state for step in table.steps}


def _only(table: SnapshotTable, number: int) -> SnapshotStep:
    (found,) = [step for step in table.steps if step.step == number]
    return found


def test_every_step_is_shown_newest_first_with_its_copies_by_tier() -> None:
    catalogue = ring([8, 9], files=[8])
    catalogue.record_stored("a", [stored(5)])
    table = _table(_trained(10), catalogue)
    assert [step.step for step in table.steps] == [9, 8, 5]
    eight = _only(table, 8)
    assert [(t.tier, t.copies, t.parts, t.nodes) for t in eight.tiers] == [
        ("own memory", 3, 3, NODES),
        ("peer memory", 3, 3, NODES),
        ("local disk", 3, 3, NODES),
    ]
    assert (eight.parts, eight.parts_held, eight.size_bytes, eight.ended_ns) == (3, 3, 24, 9 * S)
    assert [tier.tier for tier in _only(table, 5).tiers] == ["shared storage"]
    assert (_only(table, 5).parts, _only(table, 5).size_bytes) == (3, 24)


def test_the_recoverable_step_has_an_age_and_a_distance() -> None:
    table = _table(_trained(12), ring([8, 9]))
    assert (table.numbers.recoverable_step, table.numbers.steps_behind) == (9, 2)
    assert table.numbers.recoverable_age_ns == 10 * S


def test_a_step_that_the_ledger_has_not_taken_yet_was_made_just_now() -> None:
    record = _trained(5)
    assert age_ns(record, 6, 20 * S) == 0
    assert age_ns(record, 4, 20 * S) == 15 * S


def test_a_partial_step_says_what_is_missing_and_is_why_nothing_newer_is_restored() -> None:
    catalogue = ring([8])
    catalogue.replace("a", [copy("a", 0, 8), copy("a", 2, 8), copy("a", 0, 9)], 1)
    table = _table(_trained(10), catalogue)
    assert (table.numbers.restore_step, table.restore_generation) == (8, 1)
    assert _only(table, 9).state is StepState.PARTIAL
    assert table.not_newer == "step 9: no reachable copy of rank 1, rank 2"
    assert (_only(table, 9).parts_held, _only(table, 9).parts) == (1, 3)


def test_copies_that_come_while_the_lines_are_made_make_no_line_deny_what_is_said() -> None:
    catalogue = ring([8])
    catalogue.replace("a", [copy("a", 0, 8), copy("a", 2, 8), copy("a", 0, 9)], 1)
    view = _view(_trained(11), catalogue)
    lines = tuple(snapshot_steps(view))
    ring([8, 9, 10], into=catalogue)
    table = snapshot_table(view, lines)
    assert (table.numbers.restore_step, table.not_newer) == (10, "")
    assert list(_states(table)) == [(1, 10), (1, 9), (1, 8)]
    assert set(_states(table).values()) == {StepState.COMPLETE}


def test_what_cannot_be_reached_is_not_counted() -> None:
    catalogue = ring([8])
    table = _table(_trained(10), catalogue, alive=("a", "b"))
    assert table.numbers.restore_step == 8
    assert [t.copies for t in _only(table, 8).tiers] == [2, 2]
    lost = _table(_trained(10), catalogue, alive=("a",))
    assert lost.numbers.restore_step is None
    assert "rank 1" in lost.restore_reason


def test_steps_that_are_avoided_abandoned_or_on_probation_are_told_apart() -> None:
    record = _trained(10)
    record.generation.number = 2
    record.lineage.branch = [BranchPoint(1, 7, 3), BranchPoint(2, None, 3)]
    record.lineage.restored, record.lineage.crashed_from = (1, 7), [(1, 6), (1, 6)]
    table = _table(record, ring([6, 7, 8]))
    assert _states(table) == {
        (1, 8): StepState.ABANDONED,
        (1, 7): StepState.PROBATION,
        (1, 6): StepState.BLACKLISTED,
    }
    assert table.numbers.restore_step == 7
    assert "never restored" in table.not_newer


def test_storage_tells_what_is_there_underway_and_failed() -> None:
    planner = Persistence(named=[11], failures={(1, 10): "disk full"}, newest=stored(5))
    table = _table(_trained(12), ring([11]), planner=planner).numbers
    assert table.storage is not None
    assert (table.storage.step, table.storage.pending) == (5, (11,))
    assert (table.storage.failed_step, table.storage.failure) == (10, "disk full")
    planner.newest = stored(11)
    healed = _table(_trained(12), ring([11]), planner=planner).numbers.storage
    assert healed is not None
    assert healed.failure == ""


def test_of_a_job_that_has_ended_storage_tells_what_is_found_there() -> None:
    record = _trained(10)
    record.state, record.lineage.latest = JobState.ENDED, stored(3)
    catalogue = ring([])
    catalogue.record_stored("a", [stored(5)])
    found = _table(record, catalogue).numbers.storage
    assert found is not None
    assert found.step == 5
    nothing = _table(record, catalogue, alive=("b", "c")).numbers.storage
    assert nothing is not None
    assert nothing.step == 3


def test_a_step_that_goes_while_the_table_is_made_is_left_out() -> None:
    catalogue = ring([8, 9])
    view = SnapshotView(
        _trained(10), catalogue, REACHABLE, 8, Persistence(), Cadence(), None, 0, 10, now_ns=0
    )
    lines = snapshot_steps(view)
    assert next(lines).step == 9
    for node in NODES:
        catalogue.forget(node)
    assert list(lines) == []
