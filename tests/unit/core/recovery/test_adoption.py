"""What an agent began while the controller was away is gone on with, not begun anew."""

import copy

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import JobOnNode, Phase
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import BranchPoint
from unit.core.test_decisions import S, Story, launcher_joined

BOOM = "ValueError: boom"


class Away(Story):
    """A job of one node, whose controller goes away and comes back. Keeps its journal."""

    def __init__(self, *, own_restarts: int = 3) -> None:
        self.journal: list[tuple[events.Event, int]] = []
        super().__init__(2, Settings(mode=Mode.ENFORCE, autonomous_restarts_max=own_restarts))
        self.start("n0")
        self.phases(1)
        for step in range(11):
            self.progress(step)

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        self.journal.append((event, self.now_ns))
        return done

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def start(self, node: str) -> None:
        self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(nodes_min=1, nodes_max=1, processes_per_node=2, restarts_max=5),
                "j",
            )
        )
        if self.job.state is JobState.REPLANNING:
            self.choose(None)

    def phases(self, generation: int) -> None:
        for phase in Phase:
            self.tell(
                events.Reported(
                    self.origin("n0"), self.now_ns, reports.PhaseReached(generation, phase), "j"
                )
            )

    def restart_controller(self, generation: int, planned: int = 1, away_s: float = 60.0) -> None:
        self.tell(events.ControllerStarted("0.1.0"), after_s=away_s)
        self.connect("n1")
        self.connect("n0", jobs=(JobOnNode("j", generation, True, planned),))

    def die(
        self, generation: int, at_ns: int, exception: str = BOOM, kind: str = "exception"
    ) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin("n0"),
                at_ns,
                reports.RankExited(
                    generation=generation,
                    rank=0,
                    exit_code=1,
                    signal=0,
                    last_line="",
                    kind=kind,
                    exception=exception,
                    step=10,
                ),
                "j",
            )
        )

    def restarted(self, after: int, at_ns: int, step: int | None = 10) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin("n0"),
                at_ns,
                reports.RestartedHere(
                    after_generation=after,
                    generation=after + 1,
                    restore_step=step,
                    restore_generation=after if step is not None else 0,
                    decided_boot_ns=at_ns - S,
                    reason="restarted here while the controller is away",
                    at_boot_ns=at_ns,
                ),
                "j",
            )
        )

    def ended_at(self, step: int, generation: int, end_ns: int) -> None:
        row = events.JobProgressed(
            job="j", generation=generation, first_step=step, end_ns=(end_ns,), stall_ns=(0,)
        )
        self.tell(row)


def _back(*, own_restarts: int = 3) -> tuple[Away, int]:
    """A controller that is back and has heard of everything; and when the rank died."""
    story = Away(own_restarts=own_restarts)
    died_ns = story.now_ns + 10 * S
    story.restart_controller(2)
    story.die(1, died_ns)
    story.restarted(1, died_ns + 4 * S)
    return story, died_ns


def test_a_plan_leaves_numbers_to_a_node_that_has_the_whole_job_and_only_to_it() -> None:
    story = Away()
    started = actions.StartGeneration
    plans = [a for a in story.core.due(0) if isinstance(a, started)]
    assert (story.job.generation.own_restarts, plans) == (3, [])
    shared = Story(settings=Settings(autonomous_restarts_max=3))
    shared.join("n0")
    shared.join("n1")
    done = shared.choose(None)
    assert [a.own_restarts for a in done if isinstance(a, started)] == [0, 0]


def test_the_running_generation_is_adopted_and_nothing_is_started_or_stopped_again() -> None:
    story, died_ns = _back()
    assert not story.core.state.halted
    assert (story.job.generation.number, story.job.state) == (2, JobState.STARTING)
    assert (story.job.recovery.restarts, story.job.generation.own_restarts) == (1, 2)
    assert story.job.lineage.branch == [BranchPoint(1, 10, 2), BranchPoint(2, None, 2)]
    story.phases(2)
    story.ended_at(11, 2, died_ns + 6 * S)
    # The answer to the stop that the controller ordered when it heard of the death.
    stopped = events.Reported(
        story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j"
    )
    assert story.tell(stopped) == []
    assert (story.job.generation.number, story.job.state) == (2, JobState.RUNNING)
    assert not [a for a in story.core.due(story.now_ns) if isinstance(a, actions.StopGeneration)]


def test_an_agent_that_has_not_waited_leaves_no_wait_behind() -> None:
    story = Away()
    died_ns = story.now_ns + 10 * S
    story.restart_controller(3)
    for after in (1, 2):
        story.die(after, died_ns + after * S, kind="storage")
        story.restarted(after, died_ns + after * S + S // 2)
    assert (story.job.generation.number, story.job.state) == (3, JobState.STARTING)
    assert story.job.recovery.outside_ends == 2
    assert f"backoff/{story.job.id}" not in story.core.state.timers


def test_the_incident_and_its_time_are_in_the_ledger_as_they_were() -> None:
    story, died_ns = _back()
    for phase in Phase:
        at_ns = died_ns + 5 * S
        story.tell(events.Reported(story.origin("n0"), at_ns, reports.PhaseReached(2, phase), "j"))
    story.ended_at(11, 2, died_ns + 6 * S)
    incident = story.incidents[-1]
    assert (incident.onset_ns, incident.over_ns) == (died_ns, died_ns + 6 * S)
    assert (incident.plan, incident.step_restored, incident.step_before) == ("in_place", 10, 10)
    assert BOOM in incident.message
    costs = story.job.ledger.totals(story.now_ns, incident.id)
    assert {name: costs[name] for name in (Category.DETECT, Category.DRAIN, Category.ENV)} == {
        Category.DETECT: 3 * S,
        Category.DRAIN: S,
        Category.ENV: S,
    }
    totals = story.job.ledger.totals(story.now_ns)
    assert sum(totals.values()) == story.job.ledger.wall_ns(story.now_ns)
    assert Category.DIAGNOSE not in totals


def test_two_restarts_of_its_own_are_adopted_one_after_the_other() -> None:
    story = Away()
    died_ns = story.now_ns + S
    story.restart_controller(3)
    story.die(1, died_ns)
    story.restarted(1, died_ns + 2 * S)
    story.die(2, died_ns + 4 * S, "ValueError: another")
    story.restarted(2, died_ns + 8 * S)
    assert (story.job.generation.number, story.job.state) == (3, JobState.STARTING)
    assert (story.job.recovery.restarts, story.job.generation.own_restarts) == (2, 1)
    assert len(story.incidents) == 1
    totals = story.job.ledger.totals(story.now_ns)
    assert sum(totals.values()) == story.job.ledger.wall_ns(story.now_ns)


def test_the_same_failure_as_before_the_controller_went_ends_the_job() -> None:
    story, died_ns = _back()
    story.phases(2)
    done = story.die(2, story.now_ns)
    assert [a.generation for a in done if isinstance(a, actions.StopGeneration)] == [2]
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(2, 1), "j")
    )
    assert story.job.state is JobState.ENDED
    assert BOOM in story.job.reason
    assert died_ns < story.now_ns


def test_what_the_old_generation_says_after_that_changes_nothing() -> None:
    story, died_ns = _back()
    before = copy.deepcopy(story.job)
    newest = before.lineage.last_step
    assert newest is not None
    story.die(1, died_ns + 5 * S)
    for step in (10, newest + 1):
        story.ended_at(step, 1, died_ns)
    story.restarted(1, died_ns + 6 * S)
    assert story.job == before


def quarantined(core: Core) -> str:
    """Return why n0 is refused."""
    refused = core.state.refused_agents.get("n0/n0-box")
    return refused.reason if refused is not None else ""


def test_an_agent_with_a_number_that_no_plan_left_is_quarantined() -> None:
    without = Away(own_restarts=0)
    without.restart_controller(2)
    assert "generation 2 of j" in quarantined(without.core)
    more = Away(own_restarts=1)
    more.restart_controller(3)
    assert "generation 3 of j" in quarantined(more.core)
    unsaid = Away()
    unsaid.restart_controller(2, planned=0)
    assert "generation 2 of j" in quarantined(unsaid.core)
    assert not unsaid.core.state.halted


def test_the_next_plan_takes_no_number_that_a_lost_node_may_have_used() -> None:
    story = Away()
    story.start("n1")
    story.lose("n0")
    assert (story.job.generation.members, story.job.generation.number) == (["n1"], 5)


def test_what_a_lost_node_began_meanwhile_is_stopped_when_it_is_back() -> None:
    story = Away()
    story.start("n1")
    story.lose("n0")
    story.choose(10)
    story.connect("n0", jobs=(JobOnNode("j", 2, True, 1),))
    assert not story.core.state.halted
    story.die(1, story.now_ns)
    story.restarted(1, story.now_ns)
    assert (story.job.generation.members, story.job.generation.number) == (["n1"], 5)
    assert story.job.launchers["n0"].stale_generation == 2
    # What says that generation 1 is stopped says nothing of the second.
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j")
    )
    due = [a for a in story.core.due(story.now_ns) if isinstance(a, actions.StopGeneration)]
    assert [(a.node, a.generation) for a in due] == [("n0", 2)]


def test_a_stop_that_was_answered_takes_the_numbers_back() -> None:
    story = Away()
    story.die(1, story.now_ns)
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j")
    )
    assert (story.job.generation.number, story.job.state) == (2, JobState.REPLANNING)


def test_it_is_adopted_as_well_when_the_controller_had_ordered_a_stop_before_it_went() -> None:
    story = Away()
    died_ns = story.now_ns
    story.die(1, died_ns)
    assert story.job.state is JobState.STOPPING
    story.restart_controller(2)
    story.restarted(1, died_ns + 4 * S)
    assert (story.job.generation.number, story.job.state) == (2, JobState.STARTING)


def test_a_journal_that_has_lost_the_plan_adopts_nothing_on_its_own() -> None:
    story = Away()
    core = Core(copy.deepcopy(story.core.state))
    core.state.term, core.state.newest("j").generation.number = 1, 0
    core.state.newest("j").generation.own_restarts = 0
    hello = events.NodeConnected(
        node="n0",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n0-box",
        highest_term=1,
        host="n0",
        jobs=(JobOnNode("j", 2, True, 1),),
    )
    done = core.handle(hello, story.now_ns)
    assert all(isinstance(action, actions.Announce | actions.SetTimer) for action in done)
    assert "recover" in quarantined(core)


def test_a_recovery_takes_on_what_the_agent_began_and_stops_it_first() -> None:
    story = Away()
    # Restored from a backup: other terms have been, and their orders.
    hello = JobOnNode("j", 2, True, 1)
    story.tell(events.RecoveryBegun("me"))
    story.connect("n0", jobs=(hello,))
    story.connect("n1")
    story.tell(events.TimerDue("recovery"), after_s=31)
    story.connect("n0", jobs=(hello,))
    assert (story.job.generation.number, story.job.state) == (2, JobState.STOPPING)
    assert story.restarted(1, story.now_ns) == []
    assert story.job.lineage.branch == [BranchPoint(1, 10, 2), BranchPoint(2, None, 2)]
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(2, 1), "j")
    )
    assert (story.job.generation.number, story.job.state) == (2000, JobState.REPLANNING)


def test_a_recovery_listens_anew_when_the_controller_is_started_again() -> None:
    story = Away()
    story.tell(events.RecoveryBegun("me"))
    story.tell(events.ControllerStarted("0.1.0"), after_s=60)
    story.tell(events.TimerDue("recovery"))
    assert story.core.state.halted
    story.connect("n0", jobs=(JobOnNode("j", 2, True, 1),))
    story.tell(events.TimerDue("recovery"), after_s=31)
    assert not story.core.state.halted
    assert story.job.generation.number == 2


class Rebuilt(Story):
    """A journal from before a job began, rebuilt from its agents; all ranks are gone by then."""

    def __init__(self) -> None:
        super().__init__(0)
        self.tell(events.RecoveryBegun("me"))
        self.hear()
        self.tell(events.TimerDue("recovery"), after_s=31)
        self.hear()

    def hear(self) -> None:
        for node in ("n0", "n1"):
            self.connect(node, jobs=(JobOnNode("j", 3, True, job_id="j-4", world_size=4),))
        self.connect("n2")

    def begin(self, node: str, job_id: str = "", nodes_min: int = 2) -> None:
        """Have a launcher join that says which job it is of, if it knows."""
        joined = launcher_joined(
            nodes_min=nodes_min, processes_per_node=2, restarts_max=5, job_id=job_id
        )
        self.tell(events.Reported(self.origin(node), 0, joined, "j"))


@pytest.mark.parametrize("first", ["n0", "n2"])
def test_a_job_that_a_journal_has_lost_goes_on_from_what_agents_keep_whoever_comes_first(
    first: str,
) -> None:
    story = Rebuilt()
    story.begin(first, "j-4" if first == "n0" else "")
    job = story.core.state.newest("j")
    assert (job.id, job.generation.number) == ("j-4", 3)
    assert job.lineage.branch == [BranchPoint(3, None, 4)]
    story.begin("n1", "j-4")
    assert set(job.launchers) == {first, "n1"}
    if first == "n2":
        assert (job.state, job.reason.split(":")[0]) == (
            JobState.FORMING,
            "n0 has to say what became of generation 3 there",
        )
        story.begin("n0", "j-4")
    assert job.state is JobState.REPLANNING


def test_no_plan_is_made_while_the_controller_acts_on_nothing() -> None:
    story = Rebuilt()
    story.begin("n0", "j-4", nodes_min=1)
    job = story.core.state.newest("j")
    timer = events.TimerDue(f"forming/{job.id}")
    assert timer.timer in story.core.state.timers
    story.tell(events.RecoveryBegun("me"))
    story.tell(timer, after_s=15)
    assert job.state is JobState.FORMING
    story.tell(events.TimerDue("recovery"), after_s=31)
    story.hear()
    story.tell(timer)
    assert story.core.state.newest("j").state is JobState.REPLANNING


def test_what_one_agent_says_of_a_job_without_its_id_is_no_job_that_was_lost() -> None:
    story = Story(0)
    story.tell(events.RecoveryBegun("me"))
    story.connect("n0", jobs=(JobOnNode("j", 1000, True),))
    story.tell(events.TimerDue("recovery"), after_s=31)
    assert story.core.state.lost_jobs == {}


@pytest.mark.parametrize("torn", [False, True])
def test_every_prefix_of_the_journal_goes_on_to_the_same_end(torn: bool) -> None:
    story, died_ns = _back()
    story.phases(2)
    story.ended_at(11, 2, died_ns + 6 * S)
    journal = story.journal
    for cut in range(len(journal)):
        core = Core()
        for event, now_ns in journal[:cut]:
            core.handle(event, now_ns)
        # A record that was not acknowledged comes again.
        twice = torn and cut and hasattr(journal[cut - 1][0], "origin")
        again = journal[cut - 1 :] if twice else journal[cut:]
        resumed = Core(copy.deepcopy(core.state))
        for event, now_ns in again:
            called_for = resumed.handle(event, now_ns)
            due = {action.id for action in resumed.due(now_ns)}
            missing = [a for a in called_for if _lasting(a) and a.id not in due]
            assert not missing or resumed.state.halted, (event, missing)
        assert resumed.state.jobs == story.core.state.jobs


def _lasting(action: actions.Action) -> bool:
    return not isinstance(action, actions.Announce | actions.HoldLauncher)


# --- what agents begin themselves while a journal is rebuilt -------------------------------------


class OwnRestart(Story):
    """A journal from before a job of one node; its agent restarts the job after its last Hello."""

    def __init__(self) -> None:
        super().__init__(0, Settings(mode=Mode.ENFORCE, autonomous_restarts_max=3))
        self.tell(events.RecoveryBegun("me"))
        self.hear("n0", 3)
        self.connect("n2")
        self.tell(events.TimerDue("recovery"), after_s=31)

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hear(self, node: str, generation: int) -> None:
        seen = JobOnNode("j", generation, True, 3, job_id="j-4", lineage_id="j-4", world_size=1)
        self.connect(node, jobs=(seen,))

    def begin(self, node: str, job_id: str = "", running: int = 0) -> None:
        joined = launcher_joined(
            nodes_min=1,
            nodes_max=1,
            restarts_max=5,
            job_id=job_id,
            lineage_id=job_id,
            running_generation=running,
        )
        self.tell(events.Reported(self.origin(node), 0, joined, "j"))

    def begin_elsewhere(self) -> None:
        """Have a spare be planned with, as its own node has not come back for long enough."""
        self.connect("n2")
        self.begin("n2")
        assert self.job.state is JobState.FORMING
        self.tell(events.TimerDue(f"returns/{self.job.id}"), after_s=16)

    def restarted(self, name: str = "j", generation: int = 4, step: int = 9) -> None:
        report = reports.RestartedHere(
            after_generation=generation - 1,
            generation=generation,
            restore_step=step,
            restore_generation=3,
            decided_boot_ns=1,
            at_boot_ns=2,
            reason="restarted here",
        )
        self.tell(events.Reported(self.origin("n0"), self.now_ns, report, name))


_OWN = [BranchPoint(3, 9, 1), BranchPoint(4, None, 1)]


def test_what_an_agent_began_of_its_own_does_not_show_that_a_rebuilt_journal_is_old() -> None:
    story = OwnRestart()
    story.hear("n0", 4)
    assert (story.core.state.halted, story.core.state.refused_agents) == ("", {})
    # More than it was left shows that somebody else has planned.
    story.hear("n0", 7)
    assert story.core.state.halted or story.core.state.refused_agents


def test_no_number_is_used_that_an_agent_may_have_used_since_it_was_heard() -> None:
    story = OwnRestart()
    story.begin_elsewhere()
    assert (story.job.id, story.job.generation.number) == ("j-4", 2000)
    story.choose(None, lost="no reachable copy of rank 0")
    story.hear("n0", 4)
    story.restarted()
    # Its state is the newest of the job: what was before it, its agent has freed.
    assert story.job.lineage.branch == _OWN


@pytest.mark.parametrize("step", [9, 7])
def test_a_generation_that_an_agent_went_back_behind_is_on_the_branch_no_more(step: int) -> None:
    story = OwnRestart()
    story.connect("n2")
    story.begin("n2")
    story.choose(None, lost="no reachable copy of rank 0")
    story.hear("n0", 4)
    story.restarted()
    assert story.job.lineage.branch == _OWN
    # The next one began from before it: nothing that the one between has is a state of the job.
    story.restarted(generation=5, step=step)
    told = [BranchPoint(3, step, 1), BranchPoint(5, None, 1)]
    assert story.job.lineage.branch == told
    story.restarted(generation=5, step=step)
    story.restarted()
    assert story.job.lineage.branch == told


@pytest.mark.parametrize("name", ["j", "j-4"])
def test_where_an_own_generation_began_is_known_also_where_it_is_told_before_the_launcher(
    name: str,
) -> None:
    story = OwnRestart()
    story.hear("n0", 4)
    story.tell(events.RecoveryBegun("me"))
    story.hear("n0", 4)
    story.tell(events.TimerDue("recovery"), after_s=31)
    story.hear("n0", 4)
    story.restarted(name)
    story.begin("n0", "j-4", running=4)
    assert story.job.generation.number >= 4
    assert story.job.lineage.branch == _OWN


def test_where_an_own_generation_began_is_known_that_followed_the_last_hello_of_a_recovery() -> (
    None
):
    story = OwnRestart()
    story.tell(events.ControllerStarted("0.1.0"))
    story.hear("n0", 4)
    story.restarted()
    story.begin("n0", "j-4", running=4)
    assert story.job.lineage.branch == _OWN


def test_a_job_that_waits_for_its_state_does_not_begin_before_ranks_elsewhere_are_stopped() -> None:
    story = OwnRestart()
    story.begin_elsewhere()
    story.choose(None, lost="no reachable copy of rank 0")
    story.hear("n0", 3)
    story.begin("n0", "j-4", running=3)
    assert story.choose(9) == []
    assert story.job.state is JobState.WAITING_STATE
    stopped = events.Reported(
        story.origin("n0"), story.now_ns, reports.GenerationStopped(3, 1), "j"
    )
    asked_ns = [a.at_ns for a in story.tell(stopped) if isinstance(a, actions.SetTimer)]
    assert asked_ns == [story.now_ns]
    story.tell(events.TimerDue(f"retry/{story.job.id}"))
    story.choose(9)
    assert (story.job.state, story.job.generation.number) == (JobState.STARTING, 2000)
