"""What agents remember of ended jobs ends them in a restored journal, and no others."""

from dataclasses import replace

import pytest

from everstep_common.reports import EndedJob, JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.jobs.remembered_ends import news_of_ends
from everstep_controller.core.model.job import JobRecord, JobState, Outcome
from everstep_controller.core.model.snapshots import BranchPoint
from unit.core.test_decisions import Story, launcher_joined


class Restored(Story):
    """A journal in which a job of n0 and n1 runs, which has ended since; n2 has nothing of it.

    Its agents have seen the generation 5 of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.join("n0")
        self.join("n1")
        self.choose(None)
        self.old = self.job.id
        self.told = EndedJob(
            job="j",
            job_id=self.old,
            generation=5,
            term=9,
            succeeded=True,
            reason="all ranks ended well",
        )
        self.tell(events.RecoveryBegun("me"))

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hear(
        self,
        node: str,
        *told: EndedJob,
        jobs: tuple[JobOnNode, ...] = (),
        highest_term: int = 9,
    ) -> list[actions.Action]:
        return self.tell(self.hello(node, told, jobs, highest_term))

    def hello(
        self,
        node: str,
        told: tuple[EndedJob, ...],
        jobs: tuple[JobOnNode, ...] = (),
        highest_term: int = 9,
    ) -> events.NodeConnected:
        return events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=highest_term,
            host=node,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
            jobs=jobs,
            ended_jobs=told,
        )

    def ends(self) -> bool:
        """Return whether the newest job has ended by now."""
        return self.job.state is JobState.ENDED

    def recover(self) -> list[actions.Action]:
        return self.tell(events.TimerDue("recovery"), after_s=31)

    def join_as(self, node: str, job_id: str, generation: int = 0) -> None:
        joined = launcher_joined(job_id=job_id, running_generation=generation)
        self.tell(events.Reported(self.origin(node), 0, joined, "j"))


def test_a_job_that_ended_since_the_backup_ends_with_what_an_agent_was_told() -> None:
    story = Restored()
    story.hear("n0", story.told)
    story.hear("n1")
    assert not story.ends()  # it acts on nothing yet
    done = story.recover()
    assert (story.job.state, story.job.outcome) == (JobState.ENDED, Outcome.SUCCEEDED)
    assert story.job.reason.startswith("all ranks ended well (it has ended already, as the agent")
    assert "of n0 remembers" in story.job.reason
    (said,) = [one for one in done if isinstance(one, actions.Announce) and one.subject == "j"]
    assert (said.reason, said.message) == ("JobEnded", f"j is ended: {story.job.reason}")
    assert not story.incidents
    assert not [one for one in done if isinstance(one, actions.StopGeneration)]


def test_a_job_that_somebody_had_end_was_cancelled() -> None:
    story = Restored()
    told = replace(story.told, succeeded=False, reason="ended by its user on n1")
    story.hear("n1", told)
    story.recover()
    assert (story.job.state, story.job.outcome) == (JobState.ENDED, Outcome.CANCELLED)


def test_an_agent_that_comes_when_the_journal_is_rebuilt_is_heard_as_well() -> None:
    story = Restored()
    story.hear("n1")
    story.recover()
    story.hear("n1")
    assert not story.ends()
    story.hear("n0", story.told)
    assert story.ends()
    # That its processes are gone is no fault of a job that has ended.
    assert not any("n0 came back" in one.message for one in story.incidents)


def test_a_node_that_has_nothing_to_do_with_a_job_ends_it_not() -> None:
    story = Restored()
    story.hear("n2", story.told)
    story.recover()
    assert not story.ends()
    assert story.job.ending.remembered is None


def test_a_job_of_which_an_agent_has_seen_a_newer_generation_goes_on() -> None:
    story = Restored()
    story.hear("n0", story.told)
    story.hear("n1", jobs=(JobOnNode("j", 6, True, job_id=story.old, world_size=2),))
    story.recover()
    assert not story.ends()
    assert story.job.generation.number == 6


def test_one_that_did_not_hear_of_the_end_is_told() -> None:
    story = Restored()
    running = JobOnNode("j", 5, True, job_id=story.old, world_size=2)
    story.hear("n0", story.told)
    story.hear("n1", jobs=(running,))
    story.recover()
    story.hear("n1", jobs=(running,))
    assert story.ends()
    due = [one for one in story.core.due(0) if isinstance(one, actions.EndJob)]
    assert "n1" in {one.node for one in due}


def test_a_job_that_was_gone_on_with_in_a_newer_term_goes_on() -> None:
    story = Restored()
    story.recover()
    story.hear("n0")
    story.join_as("n0", "")
    assert story.job.term == story.core.state.term
    story.hear("n1", replace(story.told, term=story.job.term - 1))
    assert not story.ends()


@pytest.mark.parametrize("late", [True, False])
def test_an_agent_that_was_away_since_may_not_know_that_the_job_was_gone_on_with(
    late: bool,
) -> None:
    # As where a backup is put back twice, and this node was away the first time.
    story = Restored()
    if not late:
        story.hear("n0", story.told)
    story.hear("n2", highest_term=12)
    story.recover()
    story.hear("n0", story.told)
    assert not story.ends()
    # It has been welcomed since, and knows no more of the job by that.
    story.hear("n0", story.told, highest_term=story.core.state.term)
    assert not story.ends()
    # One that was there says so as well.
    story.hear("n1", story.told, highest_term=12)
    assert story.ends()


def _told_by_one_that_was_away() -> Restored:
    """Return a story in which n0 remembers the end, and only n2 has seen a newer term."""
    story = Restored()
    story.hear("n2", highest_term=12)
    story.recover()
    story.hear("n0", story.told)
    assert not story.ends()
    return story


def test_its_word_counts_once_too_few_nodes_are_unheard_to_have_gone_on_with_the_job() -> None:
    story = _told_by_one_that_was_away()
    story.hear("n2", highest_term=12)
    assert story.ends()
    assert story.job.outcome is Outcome.SUCCEEDED


def test_one_of_those_may_say_that_the_job_went_on() -> None:
    story = _told_by_one_that_was_away()
    newer = JobOnNode("j", 6, True, job_id=story.old, world_size=2)
    story.hear("n2", jobs=(newer,), highest_term=12)
    story.hear("n1", highest_term=12)
    assert not story.ends()


def test_what_was_heard_before_this_term_does_not_rule_out_that_the_job_went_on_since() -> None:
    story = Restored()
    story.hear("n1", highest_term=12)
    story.hear("n2", highest_term=12)
    story.hear("n0", story.told)
    story.recover()
    assert not story.ends()
    story.hear("n0", story.told)
    assert not story.ends()


def test_a_launcher_that_did_not_hear_of_the_end_is_told_also_where_it_comes_first() -> None:
    story = Restored()
    story.hear("n2")
    story.recover()
    story.hear("n1")
    story.hear("n0")
    story.join_as("n0", story.old)
    assert story.job.state is JobState.WAITING_CAPACITY
    done = story.hear("n1", story.told)
    assert (story.job.state, story.job.outcome) == (JobState.ENDED, Outcome.SUCCEEDED)
    assert [one.succeeded for one in done if isinstance(one, actions.EndJob)] == [True]


def test_what_agents_say_of_one_end_is_put_together() -> None:
    story = Restored()
    late = replace(story.told, generation=1, term=12, succeeded=False, reason="not known any more")
    story.hear("n0", story.told)
    story.hear("n1", late)
    story.recover()
    assert (story.job.state, story.job.outcome) == (JobState.ENDED, Outcome.SUCCEEDED)
    assert "of n0 remembers" in story.job.reason


@pytest.mark.parametrize("known", [True, False])
def test_the_next_job_of_the_name_is_another_one_whether_or_not_the_end_is_remembered(
    known: bool,
) -> None:
    story = Restored()
    after = f"j-{int(story.old.rpartition('-')[2]) + 900}"
    running = JobOnNode("j", 7, True, job_id=after, lineage_id=after, world_size=2)
    for node in ("n0", "n1"):
        story.hear(node, *[story.told] * known, jobs=(running,))
    story.recover()
    for node in ("n0", "n1"):
        story.hear(node, *[story.told] * known, jobs=(running,))
    for node in ("n0", "n1"):
        story.join_as(node, after, generation=7)
    assert (story.core.state.jobs[story.old].state is JobState.ENDED) == known
    assert not story.ends()
    if known:
        assert (story.job.id, story.job.generation.number) == (after, 7)
    # An old memory of a job whose id it has got, from a journal that is lost, ends it not.
    story.hear("n0", replace(story.told, job_id=story.job.id), jobs=(running,))
    assert not story.ends()


def test_what_nodes_keep_of_a_job_that_failed_is_there_for_the_next_of_its_name() -> None:
    story = Restored()
    told = replace(story.told, succeeded=False, reason="given up after 2 restarts")
    held = JobOnNode("j", 5, False, job_id=story.old, lineage_id=story.old, world_size=2)
    for node in ("n0", "n1"):
        story.hear(node, told, jobs=(held,))
    story.recover()
    for node in ("n0", "n1"):
        story.hear(node, told, jobs=(held,))
    assert story.job.outcome is Outcome.FAILED
    story.join_as("n0", "")
    story.join_as("n1", "")
    assert story.job.id != story.old
    assert BranchPoint(5, None, 2) in story.job.lineage.branch
    (asked,) = [one for one in story.core.due(0) if isinstance(one, actions.ChooseRecoveryStep)]
    assert set(asked.holders) | set(asked.others) == {"n0", "n1"}
    assert asked.expected


def test_of_what_agents_remember_only_what_is_news_is_journaled() -> None:
    story = Restored()
    others = replace(story.told, job_id="j-x"), replace(story.told, job="k"), story.told
    assert news_of_ends(story.core.state, story.hello("n0", others)) == (story.told,)
    story.hear("n0", story.told)
    story.recover()
    assert news_of_ends(story.core.state, story.hello("n0", others)) == ()
