"""A job that another journal has begun waits for who may run it, and gets numbers of its own."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.agent_identity import HelloDecision, judge_hello
from unit.core.test_decisions import S, Story, launcher_joined

LOST = JobOnNode("j", 1, True, 1, job_id="j-4", lineage_id="j-4", world_size=1)
# Its launcher waits there, and the agent has seen nothing of it run.
WAITS = replace(LOST, generation=0, planned_generation=0, world_size=0)


class Old(Story):
    """A journal of three nodes from before any job, and launchers of a job of one node."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(nodes, Settings(mode=Mode.ENFORCE, autonomous_restarts_max=3))

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def begin(self, node: str, job_id: str = "", running: int = 0) -> list[actions.Action]:
        joined = launcher_joined(
            nodes_min=1,
            nodes_max=1,
            restarts_max=5,
            job_id=job_id,
            lineage_id=job_id,
            running_generation=running,
        )
        return self.tell(events.Reported(self.origin(node), 0, joined, "j"))

    def is_planned(self) -> bool:
        """Return whether the job has waited for long enough."""
        return self.job.state is JobState.REPLANNING

    def stopped(self, node: str, generation: int) -> None:
        report = reports.GenerationStopped(generation, 1)
        self.tell(events.Reported(self.origin(node), self.now_ns, report, "j"))

    def rebuild(self, *heard: tuple[str, JobOnNode]) -> None:
        self.tell(events.RecoveryBegun("me"))
        for node, job in heard:
            self.connect(node, jobs=(job,))
        self.tell(events.TimerDue("recovery"), after_s=31)

    def decision(self, node: str, job: JobOnNode) -> HelloDecision:
        outbox = f"{node}-box"
        hello = events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=outbox,
            highest_term=self.terms.get(outbox, 0),
            host=node,
            jobs=(job,),
        )
        return judge_hello(self.core.state, hello, self.now_ns).decision


def _stops(done: list[actions.Action]) -> list[tuple[str, int]]:
    return [(one.node, one.generation) for one in done if isinstance(one, actions.StopGeneration)]


def test_a_new_job_waits_for_nobody() -> None:
    story = Old()
    story.begin("n1")
    assert (story.job.state, story.job.generation.number) == (JobState.REPLANNING, 1)


def test_a_job_whose_id_is_of_another_journal_waits_until_agents_have_had_time_to_come() -> None:
    story = Old()
    story.begin("n1", "j-4")
    assert not story.is_planned()
    assert "another journal" in story.job.reason
    until_ns = story.core.state.timers["returns/j-4"]
    assert until_ns == story.core.state.returns_until_ns
    assert 15 * S <= until_ns < 16 * S
    story.tell(events.TimerDue("returns/j-4"), after_s=15)
    # A number that no journal of an earlier term has given.
    assert (story.job.state, story.job.generation.number) == (JobState.REPLANNING, 1000)


def test_the_wait_begins_anew_with_a_controller_that_starts() -> None:
    story = Old()
    story.begin("n1", "j-4")
    story.tell(events.ControllerStarted("0.1.0"), after_s=10)
    story.connect("n1", jobs=(WAITS,))
    story.tell(events.TimerDue("returns/j-4"), after_s=6)
    assert not story.is_planned()
    story.tell(events.TimerDue("returns/j-4"), after_s=10)
    assert story.is_planned()


def test_what_agents_tell_of_a_job_that_waits_is_taken_and_gone_on_from() -> None:
    story = Old()
    story.begin("n1", "j-4")
    assert story.decision("n0", LOST) is HelloDecision.TAKEN
    story.connect("n0", jobs=(LOST,))
    assert (story.job.state, story.job.generation.number) == (JobState.FORMING, 1)
    assert "n0 has to say what became of generation 1 there" in story.job.reason
    assert _stops(story.begin("n0", "j-4", running=1)) == [("n0", 1)]
    assert not story.is_planned()
    story.stopped("n0", 1)
    assert (story.job.state, story.job.generation.number) == (JobState.REPLANNING, 1000)
    (asked,) = [a for a in story.core.due(0) if isinstance(a, actions.ChooseRecoveryStep)]
    assert asked.expected


def test_a_generation_of_another_job_of_the_name_is_news_though_its_number_is_none() -> None:
    story = Old()
    story.begin("n1")
    story.choose(None)
    assert story.job.generation.number == 1
    assert story.decision("n0", LOST) is HelloDecision.REFUSED
    assert story.decision("n0", replace(LOST, launcher=False)) is HelloDecision.TAKEN
    assert story.decision("n0", replace(LOST, job_id=story.job.id)) is HelloDecision.TAKEN


def test_nothing_begins_under_a_name_of_which_a_refused_agent_tells_for_a_while() -> None:
    story = Old()
    hello = events.NodeConnected(
        node="n9",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n9-box",
        highest_term=0,
        host="n9",
        jobs=(LOST,),
        knocks=True,
    )
    story.tell(hello)
    story.begin("n1")
    assert not story.is_planned()
    assert "n9 has begun it" in story.job.reason
    story.tell(events.TimerDue(f"returns/{story.job.id}"), after_s=16)
    assert story.is_planned()


def test_a_launcher_of_a_lost_job_is_not_over_beside_one_that_has_not_begun() -> None:
    story = Old()
    story.tell(events.ControllerStarted("0.1.0"))
    story.tell(events.AutomationPaused("j", "me", "wait"))
    story.begin("n1")
    done = story.begin("n0", "j-4", running=1)
    assert not [one for one in done if isinstance(one, actions.EndJob)]
    assert _stops(done) == [("n0", 1)]
    assert story.job.lineage_id == "j-4"


@pytest.mark.parametrize("there", [True, False])
def test_a_rebuilt_journal_has_a_job_wait_for_the_nodes_that_named_its_generation(
    there: bool,
) -> None:
    story = Old(0)
    story.rebuild(("n0", LOST), ("n1", WAITS))
    story.connect("n1", jobs=(WAITS,))
    story.begin("n1", "j-4")
    assert not story.is_planned()
    # One whose launcher has gone since runs nothing; one that does not come is waited for no more.
    if there:
        story.connect("n0", jobs=(replace(LOST, launcher=False),))
    story.tell(events.TimerDue("returns/j-4"), after_s=0.1 if there else 16)
    assert (story.job.state, story.job.generation.number) == (JobState.REPLANNING, 2000)


def test_a_job_that_has_moved_since_the_backup_is_stopped_where_it_runs_by_now() -> None:
    story = Old()
    story.begin("n1")
    story.choose(None)
    story.begin("n0", story.job.id)
    moved = replace(LOST, generation=5, planned_generation=5, job_id=story.job.id)
    waits = replace(WAITS, job_id=story.job.id)
    story.rebuild(("n0", moved), ("n1", waits))
    story.connect("n1", jobs=(waits,))
    story.stopped("n1", 5)
    assert story.job.state is JobState.WAITING_CAPACITY
    assert "n0 has to say" in story.job.reason
    story.connect("n0", jobs=(moved,))
    due = list(story.core.due(0))
    assert ("n0", 5) in _stops(due)
    story.stopped("n0", 5)
    assert (story.job.state, story.job.generation.number) == (JobState.REPLANNING, 2000)


def test_two_journals_that_are_rebuilt_one_after_the_other_give_no_number_twice() -> None:
    numbers = []
    for terms in (0, 1):
        story = Old(0)
        story.core.state.term += terms
        story.rebuild(("n0", LOST))
        story.connect("n1", jobs=(WAITS,))
        story.begin("n1", "j-4")
        story.tell(events.TimerDue("returns/j-4"), after_s=16)
        numbers.append(story.job.generation.number)
    assert numbers == [2000, 3000]


@pytest.mark.parametrize(("told", "then"), [(2, 3), (10**15, 2)])
def test_a_number_of_which_a_refused_agent_tells_is_given_to_no_other_ranks(
    told: int, then: int
) -> None:
    story = Story(nodes=4)
    story.run()
    job_id = story.core.state.newest("j").id
    theirs = replace(LOST, generation=told, planned_generation=told, job_id=job_id)
    story.connect("n2", jobs=(theirs,))
    assert story.core.state.refused_agents
    story.exit_rank("n0")
    story.stop_all()
    assert story.core.state.newest("j").generation.number == then
