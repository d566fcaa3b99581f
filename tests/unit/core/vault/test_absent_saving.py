"""The step that ranks without an agent write: chosen ahead, kept, given up, and planned ones."""

from dataclasses import replace

from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.model.job import JobRecord, Planned, PlannedKind
from everstep_controller.core.vault.absent_saving import AbsentSaving, kept_step
from everstep_controller.core.vault.copies import Copy, StepCopies
from everstep_controller.core.vault.directives import (
    DirectedGeneration,
    JobSnapshots,
    VaultOrders,
)
from unit.core.jobs.test_unsaved_steps import saving
from unit.core.test_decisions import S

_NOW = 1000 * S


def _unsaved_job() -> JobRecord:
    story = saving()
    story.tell(events.NodeDisconnected("n1"))
    story.steps(70, saved=False)
    job = story.job
    job.spec = replace(job.spec, storage=Storage("/ckpt"))
    return job


def _plan(job: JobRecord, after_step: int) -> None:
    number = job.generation.number
    job.planned = Planned(PlannedKind.DRAIN, "people", "a test", number, 0, after_step)


def test_a_step_ahead_is_kept_until_it_takes_too_long() -> None:
    job = _unsaved_job()
    first = AbsentSaving().after(job, ("n1",), None, _NOW)
    assert first.step is not None
    assert job.lineage.last_step is not None
    assert first.step > job.lineage.last_step
    assert len(first.ranks) == job.spec.processes_per_node
    assert first.after(job, ("n1",), None, first.until_ns - 1) is first
    second = first.after(job, ("n1",), None, first.until_ns)
    assert second.tries == 1
    assert second.step is not None
    assert second.step > first.step


def test_none_is_wanted_once_one_is_stored_or_agents_are_back() -> None:
    job = _unsaved_job()
    first = AbsentSaving().after(job, ("n1",), None, _NOW)
    assert first.after(job, ("n1",), first.step, _NOW) == AbsentSaving()
    assert first.after(job, (), None, _NOW) == AbsentSaving()


def test_a_planned_step_is_the_one_and_one_that_was_passed_moves_nothing() -> None:
    job = _unsaved_job()
    first = AbsentSaving().after(job, ("n1",), None, _NOW)
    assert job.lineage.last_step is not None
    _plan(job, job.lineage.last_step + 3)
    planned = first.after(job, ("n1",), None, _NOW + S)
    assert planned.step == job.lineage.last_step + 3
    _plan(job, job.lineage.last_step)
    assert planned.after(job, ("n1",), None, _NOW + 2 * S) is planned


def _held(ranks: int) -> StepCopies:
    held = StepCopies()
    for rank in range(ranks):
        held.put("n0", [Copy("n0", 1, rank, 0, rank > 0, "", 1, "")])
    return held


def test_what_a_controller_that_starts_has_not_heard_of_yet_is_kept_in_memory() -> None:
    job = _unsaved_job()
    assert job.lineage.recoverable_step == 100
    # Nodes may have heard of a newer one than the core.
    steps = {80: _held(2), 101: _held(1), 102: _held(2), 103: _held(2), 150: _held(1)}
    assert kept_step(job, steps, None, None) == 102, "the agent that is away holds some of it, too"
    assert kept_step(job, steps, None, 60) == 102
    assert kept_step(job, {}, None, 60) == 100
    assert kept_step(job, steps, None, 100) is None, "storage has it"
    assert kept_step(job, steps, 90, 100) == 90, "what is freed follows memory"
    wanted = AbsentSaving(step=200)
    assert wanted.in_the_way(steps, kept_step(job, steps, None, 60), 60) == (103, 150)


def test_an_older_step_in_storage_is_not_taken_for_the_newest_one_that_members_have() -> None:
    job = _unsaved_job()
    snapshots = JobSnapshots("j", generation=DirectedGeneration(1, ("n0", "n1"), 2))
    for stored, restorable in ((60, None), (100, 100), (120, 120)):
        snapshots.orders = VaultOrders(stored_step=stored, member_away=True)
        assert snapshots.restorable_step(job) == restorable
