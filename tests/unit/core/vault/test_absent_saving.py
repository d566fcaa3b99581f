"""The step that ranks without an agent write: chosen ahead, kept, given up, and planned ones."""

from dataclasses import replace

from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.model.job import JobRecord, Planned, PlannedKind
from everstep_controller.core.vault.absent_saving import AbsentSaving
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
