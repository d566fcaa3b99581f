"""A launcher that comes back after its job's end is told so, whatever has its name by now."""

import pytest

from everstep_common.job_ids import number_of_job
from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.jobs.test_continuation import NextStory
from unit.core.test_decisions import launcher_joined


class LateStory(NextStory):
    """Launchers that say which job of the name they are of."""

    def rejoin(self, node: str, job_id: str, *, running: int = 0) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(restarts_max=9, running_generation=running, job_id=job_id),
                "j",
            )
        )

    def hello(self, node: str, seen: JobOnNode) -> list[actions.Action]:
        return self.tell(
            events.NodeConnected(
                node=node,
                boot_id="1",
                agent_version="0.2.0",
                outbox=f"{node}-box",
                highest_term=0,
                host=node,
                jobs=(seen,),
            )
        )

    def next_runs(self) -> tuple[str, JobRecord]:
        """End the job while n1 is cut off, begin the next on other nodes; return its id."""
        self.cancelled()
        before = self.job.id
        self.join("n2")
        self.join("n3")
        return before, self.chosen(2)


def _ends(done: list[actions.Action]) -> list[actions.EndJob]:
    return [action for action in done if isinstance(action, actions.EndJob)]


def test_every_launcher_learns_which_job_of_its_name_it_is_of() -> None:
    story = LateStory(nodes=4)
    held = [a for a in story.join("n0") if isinstance(a, actions.HoldLauncher)]
    assert {a.job_id for a in held} == {story.job.id} != {""}
    story.join("n1")
    started = [a for a in story.choose(None) if isinstance(a, actions.StartGeneration)]
    assert {a.job_id for a in started} == {story.job.id}


def test_a_job_has_a_higher_number_than_those_of_its_name_before_it() -> None:
    story = LateStory(nodes=4)
    before, job = story.next_runs()
    numbers = [number_of_job(one, "j") or 0 for one in (before, job.id)]
    assert 0 < numbers[0] < numbers[1]
    assert list(story.core.state.jobs) == [before, job.id]
    assert story.core.state.names == {"j": job.id}
    assert job.lineage.continues is not None
    assert job.lineage.continues.job_id == before


def test_a_launcher_that_hung_past_its_jobs_end_is_ended_and_takes_no_part_in_the_next() -> None:
    story = LateStory(nodes=4)
    before, job = story.next_runs()
    done = story.rejoin("n1", before)
    (end,) = _ends(done)
    assert (end.node, end.job_id, end.succeeded) == ("n1", before, False)
    assert end.reason == (
        "it ended while this launcher was away (ended by its user on n0 after step 2, which stays"
        " in memory of n0, n1 for 30 min); another job has the name j since, see 'everstep job j'"
    )
    assert "n1" not in job.launchers
    assert job.state is JobState.STARTING
    # The next job may still want what the node holds.
    assert [a.node for a in done if isinstance(a, actions.KeepJob)] == ["n1"]


def test_a_spare_is_told_after_which_generation_its_job_ended_at_once_or_when_it_comes() -> None:
    story = LateStory(nodes=4)
    story.run()
    story.train(1, 2)
    story.join("n2")
    story.leave("n0")
    story.sequence += 1
    told = _ends(story.stop_all())
    assert {one.node: one.generation for one in told} == {"n0": 1, "n1": 1, "n2": 1}
    late = _ends(story.rejoin("n3", story.job.id))
    assert {one.node: one.generation for one in late} == {"n3": 1}


def test_a_late_launcher_begins_no_job_where_no_other_has_the_name() -> None:
    story = LateStory(nodes=4)
    story.cancelled()
    ended = story.job
    story.vanish("n1")
    (end,) = _ends(story.rejoin("n1", ended.id))
    assert end.reason.startswith("it ended while this launcher was away (ended by its user on n0")
    assert story.job is ended


def test_a_node_that_was_cut_off_is_told_which_of_its_launchers_are_late() -> None:
    story = LateStory(nodes=4)
    before, job = story.next_runs()
    seen = JobOnNode("j", 1, True, 1, before, before)
    assert [end.job_id for end in _ends(story.hello("n1", seen))] == [before]
    own = JobOnNode("j", job.generation.number, True, job.generation.number, job.id, before)
    assert not _ends(story.hello("n2", own))


@pytest.mark.parametrize("told", ["", None, "other-1", "j", "j-", "j-x"])
def test_a_launcher_that_says_no_id_of_its_name_is_served_as_ever(told: str | None) -> None:
    story = LateStory(nodes=4)
    _, job = story.next_runs()
    done = story.rejoin("n1", job.id if told is None else told)
    assert not _ends(done)
    assert "n1" in job.launchers


def test_a_launcher_of_a_newer_job_than_the_journal_knows_is_not_told_that_it_is_over() -> None:
    story = LateStory(nodes=4)
    _, job = story.next_runs()
    assert not _ends(story.rejoin("n1", "j-999999"))
    assert "n1" in job.launchers


def test_a_controller_that_has_forgotten_a_running_job_takes_its_number_over() -> None:
    story = LateStory(nodes=4)
    story.rejoin("n0", "j-7001", running=3)
    assert story.job.id == "j-7001"
    assert not _ends(story.rejoin("n1", "j-7001", running=3))
    # An id that nobody can have given is not taken over.
    strange = LateStory(nodes=2)
    strange.rejoin("n0", f"j-{10**18}")
    assert strange.job.id == f"j-{strange.core.state.event_count}"


def test_a_launcher_of_the_job_that_is_ending_is_not_taken_for_the_next_ones() -> None:
    story = LateStory(nodes=4)
    story.run()
    story.train(1, 2)
    story.leave("n0")
    story.sequence += 1
    story.rejoin("n1", story.job.id, running=1)
    assert list(story.core.state.jobs) == [story.job.id]
