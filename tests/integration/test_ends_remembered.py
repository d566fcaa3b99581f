"""An agent that is told to end a job remembers that, until a controller goes on with the job."""

from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.state.remembered_ends import RememberedEnds
from everstep_common.launcher_messages import End, Hold, Start
from integration.vault_world import JOB_ID, Kept, launcher, lived, plan, running, settings


@lived
async def test_the_end_of_a_job_is_remembered_with_what_was_seen_of_it(tmp_path: Path) -> None:
    ends = RememberedEnds("[]", lambda _: None, lambda: 5)
    world = Environment(stored_fds={}, keeper=Kept(), ends=ends, term=lambda: 7)
    async with running(settings(tmp_path), world=world) as node:
        async with launcher(node) as control:
            node.order(start_generation=plan(3))
            assert isinstance(await control.hear(), Start)
            assert node.jobs.ended_jobs() == ()
            node.order(end_job={"job": "demo", "succeeded": True})
            assert isinstance(await control.hear(), End)
        (told,) = node.jobs.ended_jobs()
        assert (told.job, told.job_id, told.generation, told.term) == ("demo", JOB_ID, 3, 7)
        assert (told.succeeded, told.unsaved, told.reason) == (True, False, "test")
        # The next job of the name is another one.
        async with launcher(node) as control:
            node.order(start_generation=plan(4, job_id="demo-9", lineage_id="demo-9"))
            await control.hear()
            assert node.jobs.ended_jobs() == (told,)
            # A controller whose journal is older than the end goes on with the first.
            node.order(start_generation=plan(5))
            assert node.jobs.ended_jobs() == ()


@lived
async def test_the_end_of_a_job_that_is_not_known_here_any_more_is_remembered(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        node.order(end_job={"job": "demo", "succeeded": False})
        (told,) = node.jobs.ended_jobs()
        assert (told.job_id, told.generation, told.succeeded) == (JOB_ID, 0, False)


@lived
async def test_a_spare_remembers_the_generation_that_it_was_told(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            node.order(hold_launcher={"job": "demo", "spare": True})
            assert isinstance(await control.hear(), Hold)
            node.order(end_job={"job": "demo", "succeeded": True, "generation": 4})
            assert isinstance(await control.hear(), End)
        (told,) = node.jobs.ended_jobs()
        assert told.generation == 4
