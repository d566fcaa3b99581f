"""A job that a rebuilt journal has lost begins from nothing only by the word of all its ranks."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.reports import JobOnNode, RanksWithoutSnapshot, Storage
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.test_decisions import Story, launcher_joined

JOB, GENERATION, WORLD = "j-4", 3, 4
# What the agent of a node says that has two of four ranks.
NEVER = RanksWithoutSnapshot(GENERATION, 2, WORLD)
KNOWN = JobOnNode("j", GENERATION, True, job_id=JOB, world_size=WORLD)


class Rebuilt(Story):
    """A journal from before a job of two nodes began, and its agents; n2 is a spare of it."""

    def __init__(
        self, storage: Storage | None = None, of_spare: tuple[JobOnNode, ...] = ()
    ) -> None:
        self.storage = storage
        super().__init__(0)
        self.tell(events.RecoveryBegun("me"))
        for node in ("n0", "n1"):
            self.connect(node, jobs=(KNOWN,))
        self.connect("n2", jobs=of_spare)
        self.tell(events.TimerDue("recovery"), after_s=31)
        self.connect("n2")

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hear(self, node: str, word: RanksWithoutSnapshot | None = NEVER, boot: str = "1") -> None:
        self.connect(node, boot, jobs=(replace(KNOWN, without_snapshot=word),))

    def begin(self, *nodes: str) -> list[actions.Action]:
        """Have launchers say whose they are; return what the last one leads to."""
        done: list[actions.Action] = []
        for node in nodes or ("n0", "n1"):
            joined = launcher_joined(
                processes_per_node=2,
                restarts_max=5,
                running_generation=GENERATION,
                job_id=JOB,
                storage=self.storage,
            )
            self.tell(events.Reported(self.origin(node), 0, joined, "j"))
        for node in nodes or ("n0", "n1"):
            stopped = reports.GenerationStopped(GENERATION, 1)
            done = self.tell(events.Reported(self.origin(node), self.now_ns, stopped, "j"))
        return done

    def expects(self) -> bool:
        """Return whether the catalogue is told that there must be some state."""
        due = self.core.due(self.now_ns)
        (asked,) = [one for one in due if isinstance(one, actions.ChooseRecoveryStep)]
        return asked.expected


def _both(storage: Storage | None = None, of_spare: tuple[JobOnNode, ...] = ()) -> Rebuilt:
    story = Rebuilt(storage, of_spare)
    for node in ("n0", "n1"):
        story.hear(node)
    story.begin()
    assert story.job.state is JobState.REPLANNING
    return story


def test_where_the_agents_of_all_ranks_say_that_none_was_ever_made_no_state_is_expected() -> None:
    story = _both()
    assert not story.expects()
    story.choose(None)
    began = story.job.state, story.job.generation.number
    assert began == (JobState.STARTING, story.job.first_number)
    # From now on the journal knows itself.
    assert story.job.lineage.adopted is None


@pytest.mark.parametrize(
    "word",
    [
        None,  # an agent of a version that does not say so, and one of a job with snapshots
        replace(NEVER, generation=GENERATION - 1),
        replace(NEVER, ranks=1),
        replace(NEVER, ranks=3),
        replace(NEVER, world_size=6),
        replace(NEVER, stop_ordered=True),
    ],
)
def test_one_agent_that_says_less_than_that_has_the_job_wait_for_its_state(
    word: RanksWithoutSnapshot | None,
) -> None:
    story = Rebuilt()
    story.hear("n0")
    story.hear("n1", word)
    story.begin()
    assert story.expects()


def test_a_later_word_that_there_was_one_counts_whoever_said_what_before() -> None:
    story = _both()
    story.hear("n0", None)
    assert story.expects()


def test_a_word_that_comes_late_ends_the_wait() -> None:
    story = Rebuilt()
    story.hear("n0")
    story.connect("n1")
    story.begin()
    assert story.expects()
    story.choose(None, lost="no reachable copy")
    assert story.job.state is JobState.WAITING_STATE
    story.hear("n1")
    assert not story.expects()


def test_the_word_of_an_agent_that_is_away_is_not_counted() -> None:
    story = _both()
    story.tell(events.NodeDisconnected("n1"))
    assert story.expects()
    story.hear("n1")
    assert not story.expects()


def test_the_stop_that_this_controller_ordered_takes_back_no_word_not_even_over_its_restart() -> (
    None
):
    story = _both()
    for node in ("n0", "n1"):
        story.hear(node, replace(NEVER, stop_ordered=True))
    assert not story.expects()
    story.tell(events.ControllerStarted("0.1.0"))
    assert story.expects()  # nobody has been heard in this term
    for node in ("n0", "n1"):
        story.hear(node, replace(NEVER, stop_ordered=True))
    assert not story.expects()


def test_what_was_said_before_or_while_the_journal_was_rebuilt_is_not_counted() -> None:
    story = Story(0)
    for node in ("n0", "n1"):
        story.connect(node, jobs=(replace(KNOWN, generation=0, without_snapshot=NEVER),))
    story.tell(events.RecoveryBegun("me"))
    for node in ("n0", "n1"):
        story.connect(node, jobs=(replace(KNOWN, without_snapshot=NEVER),))
    story.tell(events.TimerDue("recovery"), after_s=31)
    assert [one.jobs.without_snapshot for one in story.core.state.nodes.values()] == [{}, {}]


def test_the_word_of_a_node_that_has_started_anew_is_forgotten() -> None:
    story = _both()
    story.hear("n1", boot="2")
    assert JOB not in story.core.state.nodes["n1"].jobs.without_snapshot


def test_a_generation_that_is_newer_than_the_one_told_of_has_the_job_wait() -> None:
    newer = JobOnNode("j", GENERATION + 1, False, job_id=JOB)
    assert _both(of_spare=(newer,)).expects()


def test_a_job_with_storage_waits_for_ranks_write_there_without_an_agent() -> None:
    assert _both(storage=Storage(path="/data")).expects()


def test_a_job_whose_snapshots_the_journal_knows_goes_on_from_them_whatever_agents_say() -> None:
    story = _both()
    story.job.lineage.recoverable_step = 7
    assert story.expects()
