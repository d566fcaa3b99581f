"""A launcher whose job has ended, and is not known to a restored journal, is told of that end."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from everstep_common.reports import EndedJob, JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.jobs.remembered_ends import news_of_ends
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.agent_identity import HelloDecision, judge_hello
from unit.core.test_decisions import Story, launcher_joined

LOST = "j-900"
TOLD = EndedJob(
    job="j", job_id=LOST, generation=5, term=9, succeeded=True, reason="all ranks ended well"
)
# Its launcher waits there for the end, and ranks of its last generation were there.
WAITS = JobOnNode("j", 5, True, planned_generation=5, job_id=LOST, lineage_id=LOST, world_size=2)


class Old(Story):
    """A journal from before a job of n0 and n1, which has ended since; n0 has not heard of that."""

    def __init__(self) -> None:
        super().__init__(3, Settings())
        self.tell(events.RecoveryBegun("me"))

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hello(
        self, node: str, told: Iterable[EndedJob], jobs: Iterable[JobOnNode]
    ) -> events.NodeConnected:
        return events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=9,
            host=node,
            jobs=tuple(jobs),
            ended_jobs=tuple(told),
        )

    def hear(self, node: str, *told: EndedJob, jobs: Iterable[JobOnNode] = ()) -> set[str]:
        """Return the nodes whose launchers are told that a job has ended, and well."""
        hello = self.hello(node, told, jobs)
        return _ended(self.tell(replace(hello, ended_jobs=self.news(*hello.ended_jobs))))

    def news(self, *told: EndedJob) -> tuple[EndedJob, ...]:
        """Return what is journaled of what an agent remembers."""
        return news_of_ends(self.core.state, self.hello("n1", told, ()))

    def recover(self) -> set[str]:
        return _ended(self.tell(events.TimerDue("recovery"), after_s=31))

    def join_as(self, node: str, job_id: str = LOST, generation: int = 5) -> set[str]:
        joined = launcher_joined(job_id=job_id, running_generation=generation)
        return _ended(self.tell(events.Reported(self.origin(node), 0, joined, "j")))


def _ended(done: Iterable[actions.Action]) -> set[str]:
    orders = [one for one in done if isinstance(one, actions.EndJob)]
    assert all(one.succeeded and one.job_id == LOST for one in orders)
    return {one.node for one in orders}


def test_a_launcher_that_comes_after_the_word_is_told_and_begins_nothing() -> None:
    story = Old()
    assert story.hear("n0", jobs=(WAITS,)) == set()
    assert story.hear("n1", TOLD) == set()
    assert story.recover() == set()  # it is heard anew by whoever acts again
    assert story.hear("n0", jobs=(WAITS,)) == {"n0"}
    assert story.join_as("n0") == {"n0"}
    assert not story.core.state.jobs


def test_the_sentence_names_who_remembers() -> None:
    story = Old()
    story.hear("n1", TOLD)
    story.recover()
    done = story.tell(story.hello("n0", (), (WAITS,)))
    (told,) = [one for one in done if isinstance(one, actions.EndJob)]
    assert told.reason == (
        "it ended while this launcher was away (all ranks ended well, as the agent of n1 remembers:"
        " the journal had lost that)"
    )


def test_a_launcher_that_comes_before_the_word_is_told_when_it_comes() -> None:
    story = Old()
    story.hear("n0", jobs=(WAITS,))
    story.recover()
    story.hear("n0", jobs=(WAITS,))
    assert story.join_as("n0") == set()
    assert (story.job.id, story.job.state) == (LOST, JobState.FORMING)
    assert story.hear("n1", TOLD) == {"n0"}
    assert (story.job.state, story.job.ending.succeeded) == (JobState.ENDED, True)


def test_a_job_that_others_have_joined_since_goes_on() -> None:
    story = Old()
    story.hear("n0", jobs=(WAITS,))
    story.recover()
    story.join_as("n0")
    story.join_as("n2", job_id="", generation=0)
    assert story.hear("n1", TOLD) == set()
    assert story.job.state is not JobState.ENDED


@pytest.mark.parametrize("first", [True, False])
def test_a_job_of_which_an_agent_has_seen_a_newer_generation_goes_on(first: bool) -> None:
    story = Old()
    newer = replace(WAITS, generation=6, planned_generation=6)
    if first:
        story.hear("n2", jobs=(newer,))
    story.hear("n1", TOLD)
    if not first:
        story.hear("n2", jobs=(newer,))
    story.recover()
    assert story.join_as("n0") == set()
    assert story.hear("n1", TOLD) == set()
    assert story.job.state is not JobState.ENDED


def test_nothing_is_ended_while_an_agent_is_refused_that_has_seen_a_newer_generation() -> None:
    story = Old()
    story.hear("n1", TOLD)
    story.recover()
    stranger = story.hello("n9", (), (replace(WAITS, generation=6, planned_generation=6),))
    found = judge_hello(story.core.state, stranger, story.now_ns).decision
    assert found is HelloDecision.REFUSED
    story.tell(replace(stranger, knocks=True))
    assert story.join_as("n0") == set()


def test_a_job_with_which_this_journal_has_gone_on_is_not_ended_by_an_older_word() -> None:
    story = Old()
    story.hear("n0", jobs=(WAITS,))
    story.recover()
    story.hear("n2")
    story.hear("n0", jobs=(replace(WAITS, generation=0),))
    for node in ("n0", "n2"):
        story.join_as(node, generation=0)
    story.tell(events.TimerDue(f"returns/{LOST}"), after_s=16)
    assert story.job.generation.number >= story.job.first_number > 0
    assert story.hear("n1", TOLD) == set()
    assert story.job.state is not JobState.ENDED


def test_the_next_job_of_the_name_is_another_one() -> None:
    story = Old()
    story.hear("n0", jobs=(WAITS,))
    story.hear("n1", TOLD)
    story.recover()
    assert story.join_as("n2", job_id="", generation=0) == set()
    assert story.job.id == "j-901"  # a number that no job of the name has had
    assert story.job.generation.number == 5  # the next generation is one that nobody has seen
    assert story.hear("n0", jobs=(WAITS,)) == {"n0"}
    assert story.join_as("n0") == {"n0"}
    assert list(story.job.launchers) == ["n2"]
    assert story.hear("n1", TOLD) == set()
    assert story.job.state is JobState.FORMING


def test_an_end_is_journaled_once_and_never_of_a_job_that_was_forgotten() -> None:
    story = Old()
    assert story.news(TOLD) == (TOLD,)
    story.hear("n1", TOLD)
    assert story.news(TOLD, replace(TOLD, generation=4)) == ()
    newer = replace(TOLD, term=10)
    assert story.news(newer) == (newer,)
    story.core.state.forgotten_through = 950
    assert story.news(replace(TOLD, job_id="j-940")) == ()


def test_those_are_kept_that_were_heard_of_last_and_for_a_day() -> None:
    story = Old()
    for first in range(0, 2100, 60):
        ends = (replace(TOLD, job_id=f"j-{number}") for number in range(first, first + 60))
        story.hear("n1", *ends)
    kept = list(story.core.state.lost_ends)
    assert (len(kept), kept[0], kept[-1]) == (2000, "j-100", "j-2099")
    story.now_ns += 25 * 3600 * 1_000_000_000
    story.hear("n1", replace(TOLD, job_id="j-3000"))
    assert list(story.core.state.lost_ends) == ["j-3000"]


def test_which_nodes_a_job_has_that_was_never_begun_here_nobody_knows() -> None:
    story = Old()
    story.tell(replace(story.hello("n2", (), ()), highest_term=12))
    story.recover()
    story.hear("n0", jobs=(WAITS,))
    story.join_as("n0", generation=0)
    story.hear("n1", TOLD)
    story.hear("n2")
    # All that are known here have been heard, and others may have gone on with it.
    assert story.job.state is not JobState.ENDED
