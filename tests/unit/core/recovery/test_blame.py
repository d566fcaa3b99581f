"""How a job goes on after ranks died, from their exits to orders, told as short stories."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal import codec
from unit.core.test_decisions import XID, S, Story, kinds, launcher_joined

BAD_BATCH = "ValueError: bad batch 17"
WEAR = replace(
    XID,
    condition="RowRemapPending",
    severity=Severity.DEGRADED,
    suggested_action=SuggestedAction.RESET_DEVICE,
    message="a row of gpu/0 waits to be remapped",
)


class Incidents(Story):
    """A job whose ranks die in a way that was classified."""

    def die(
        self,
        node: str,
        kind: str,
        *,
        exception: str = "",
        step: int | None = None,
        ago_ns: int = 0,
        rank: int = 0,
    ) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin(node),
                self.now_ns - ago_ns,
                reports.RankExited(
                    generation=self.job.generation.number,
                    rank=rank,
                    exit_code=1,
                    signal=0,
                    last_line="",
                    kind=kind,
                    exception=exception,
                    step=step,
                ),
                "j",
            )
        )

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def again(
        self,
        node: str,
        kind: str,
        *,
        exception: str = "",
        step: int | None = None,
        rank: int = 0,
    ) -> None:
        """A rank dies, everybody stops, the next generation begins from step 0 if there is one."""
        self.die(node, kind, exception=exception, step=step, rank=rank)
        self.stop_all()
        if self.job.state is JobState.REPLANNING:
            self.choose(None if self.job.lineage.last_step is None else 0)


def test_the_same_exception_at_the_same_step_ends_the_job_with_its_words() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "exception", exception=BAD_BATCH, step=16)
    assert story.job.state is JobState.STARTING
    story.again("n1", "exception", exception=BAD_BATCH, step=16)
    assert (story.job.state, story.job.ending.succeeded) == (JobState.ENDED, False)
    assert BAD_BATCH in story.job.reason
    assert "the script or its data is at fault" in story.job.reason
    assert story.owners("n0") == story.owners("n1") == []
    assert story.job.recovery.restarts == 1


def test_a_missing_module_ends_a_job_before_a_second_try() -> None:
    story = Incidents()
    story.join("n0")
    story.join("n1")
    story.choose(None)
    missing = "ModuleNotFoundError: No module named 'x'"
    story.die("n0", "import", exception=missing)
    story.die("n1", "import", exception=missing, rank=1)
    story.stop_all()
    assert story.job.state is JobState.ENDED
    assert missing in story.job.reason


def test_the_broken_collective_of_another_rank_is_not_the_cause_even_if_it_was_first() -> None:
    story = Incidents()
    story.run()
    story.die("n1", "collective", exception="RuntimeError: Connection closed by peer")
    assert story.incidents[-1].cause == "collective"
    story.die("n0", "exception", exception=BAD_BATCH)
    incident = story.incidents[-1]
    assert (incident.cause, incident.node) == ("process", "n0")
    story.die("n1", "collective", ago_ns=S, rank=1)
    assert story.incidents[-1].node == "n0"


def test_a_second_unexplained_death_on_a_node_has_a_spare_take_its_place_and_the_node_checked() -> (
    None
):
    story = Incidents()
    story.run()
    story.join("n2")
    story.again("n0", "crash", step=16)
    assert story.job.generation.members == ["n0", "n1"]
    story.progress(1)
    story.die("n0", "crash", step=20)
    done = story.stop_all()
    assert story.job.generation.members == ["n2", "n1"]
    assert (story.state("n0"), story.owners("n0")) == (NodeState.VALIDATING, ["automation"])
    check = next(action for action in done if isinstance(action, actions.RunCheck))
    assert check.node == "n0"
    assert "second death" in story.core.state.nodes["n0"].reason
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.CheckFinished(check.id, True, "all is well"))
    )
    assert (story.state("n0"), story.owners("n0")) == (NodeState.PROBATION, [])


def test_the_second_death_may_be_of_another_job() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "crash", step=16)
    strikes = story.core.state.nodes["n0"].blame.strikes
    strikes[0] = replace(strikes[0], job="another")
    story.again("n0", "cuda", step=17)
    assert story.owners("n0") == ["automation"]


def test_deaths_on_a_node_that_lie_far_apart_are_not_held_against_it() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "crash", step=16)
    story.progress(1)
    story.tell(events.TimerDue("nothing"), after_s=86_401)
    story.again("n0", "crash", step=20)
    assert story.owners("n0") == []


def test_a_job_that_is_killed_from_outside_again_and_again_costs_no_node() -> None:
    story = Incidents()
    story.run()
    for step in range(1, 6):
        story.again("n0", "killed", step=step)
        story.progress(step)
    assert story.owners("n0") == []
    assert story.job.state is not JobState.ENDED


def test_where_automation_only_advises_the_node_is_named_and_the_job_goes_on_there() -> None:
    story = Incidents(settings=Settings(mode=Mode.ADVISE))
    story.run()
    story.again("n0", "crash", step=16)
    story.die("n0", "crash", step=16)
    done = story.stop_all()
    advice = [a.message for a in done if isinstance(a, actions.Announce) and a.subject == "n0"]
    assert "n0 should be replaced and checked" in advice[0]
    assert "everstep isolate n0" in advice[0]
    assert sorted(story.job.generation.members) == ["n0", "n1"]


def test_the_budget_bounds_what_deaths_may_take() -> None:
    story = Incidents(nodes=6)
    story.run()
    story.find("n4")
    story.find("n5")
    story.again("n0", "crash", step=16)
    story.again("n0", "crash", step=16)
    assert story.owners("n0") == []


def test_a_node_that_is_blamed_while_automation_pauses_is_checked_when_it_goes_on() -> None:
    story = Incidents()
    story.run()
    story.tell(events.AutomationPaused("n0", "ops", "look"))
    story.again("n0", "crash", step=16)
    story.again("n0", "cuda", step=17)
    assert story.owners("n0") == []
    assert story.core.state.nodes["n0"].isolation.deferred
    story.tell(events.AutomationResumed("n0", "ops"))
    assert (story.state("n0"), story.owners("n0")) == (NodeState.VALIDATING, ["automation"])
    assert not story.core.state.nodes["n0"].isolation.deferred


def test_a_node_that_told_of_its_hardware_is_replaced_at_the_first_death() -> None:
    story = Incidents()
    story.run()
    story.join("n2")
    story.find("n0", WEAR)
    story.die("n0", "cuda", step=16)
    story.stop_all()
    assert story.job.generation.members == ["n2", "n1"]
    assert WEAR.message in story.core.state.nodes["n0"].reason


def test_a_finding_that_comes_after_the_restart_moves_the_job_once_more() -> None:
    story = Incidents()
    story.run()
    story.join("n2")
    story.again("n0", "cuda", step=16)
    assert story.job.generation.members == ["n0", "n1"]
    done = story.find("n0", WEAR)
    assert story.owners("n0") == ["automation"]
    assert kinds(done) >= {actions.RunCheck, actions.StopGeneration}
    story.stop_all()
    assert story.job.generation.members == ["n2", "n1"]


def test_a_finding_after_the_next_new_step_or_of_something_else_changes_nothing() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "cuda", step=16)
    story.find("n0", replace(WEAR, suggested_action=SuggestedAction.WATCH))
    assert story.owners("n0") == []
    story.progress(1)
    story.find("n0", WEAR)
    assert story.owners("n0") == []


def test_a_finding_that_comes_too_late_is_not_held_to_be_the_cause() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "cuda", step=16)
    story.tell(events.TimerDue("nothing"), after_s=61)
    story.find("n0", WEAR)
    assert story.owners("n0") == []


def test_a_finding_that_is_only_observed_is_no_evidence() -> None:
    settings = Settings(mode=Mode.ENFORCE, observe=("RowRemapPending",))
    story = Incidents(settings=settings)
    story.run()
    story.find("n0", WEAR)
    story.again("n0", "cuda", step=16)
    assert story.owners("n0") == []


def test_a_finding_that_is_only_told_is_no_evidence() -> None:
    story = Incidents()
    story.run()
    told = replace(WEAR, severity=Severity.INFO, suggested_action=SuggestedAction.REPAIR_HARDWARE)
    story.find("n0", told)
    story.again("n0", "exception", exception=BAD_BATCH, step=16)
    assert story.owners("n0") == []
    story.again("n0", "exception", exception=BAD_BATCH, step=16)
    assert story.job.state is JobState.ENDED
    assert "the script or its data is at fault" in story.job.reason


def test_a_finding_does_not_have_the_same_death_tried_for_ever_on_the_only_node() -> None:
    story = Incidents(settings=Settings(mode=Mode.ADVISE))
    alone = launcher_joined(nodes_min=1, nodes_max=1, restarts_max=3, free_port=1)
    story.find("n0", WEAR)
    story.tell(events.Reported(story.origin("n0"), 0, alone, "j"))
    story.choose(None)
    for _ in range(9):
        if story.job.state is not JobState.ENDED:
            story.again("n0", "exception", exception=BAD_BATCH)
    assert story.job.state is JobState.ENDED
    assert story.job.recovery.restarts == 4
    assert "given up after 3 restarts without a new step" in story.job.reason
    assert WEAR.message in story.job.reason


def test_a_crash_loop_ends_with_what_was_tried() -> None:
    story = Incidents()
    story.run()
    for step in range(3):
        story.again("n0", "exception", exception=f"ValueError: {step}", step=step)
    assert story.job.state is JobState.ENDED
    assert "given up after 2 restarts without a new step" in story.job.reason
    assert "ValueError: 2" in story.job.reason
    plan = "in place on n0, n1 from step 0"
    assert story.job.reason.endswith(f"; tried: 2 times {plan}")


def test_a_paused_job_is_neither_judged_nor_ended() -> None:
    story = Incidents()
    story.run()
    story.again("n0", "exception", exception=BAD_BATCH, step=16)
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.again("n0", "exception", exception=BAD_BATCH, step=16)
    states = [story.job.state]
    story.tell(events.AutomationResumed("j", "ops"))
    states.append(story.job.state)
    assert states == [JobState.WAITING_CAPACITY, JobState.ENDED]


def test_another_job_on_the_blamed_node_moves_as_well() -> None:
    story = Incidents()
    story.run()
    other = codec.decode_state(codec.encode(story.core.state)).newest("j")
    other.name, other.id = "other", "other-1"
    story.core.state.jobs["other-1"] = other
    story.core.state.names["other"] = "other-1"
    for name in other.launchers:
        story.core.state.nodes[name].jobs.ids.append("other-1")
    story.again("n0", "crash", step=16)
    story.again("n0", "crash", step=16)
    assert story.owners("n0") == ["automation"]
    assert incidents_of_job(story.core.state, other)[-1].cause == "finding"


def test_a_restart_of_the_controller_at_any_event_decides_the_same() -> None:
    told: list[tuple[events.Event, int]] = []

    class Recorded(Incidents):
        def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
            done = super().tell(event, after_s)
            told.append((event, self.now_ns))
            return done

    story = Recorded()
    story.run()
    story.join("n2")
    story.again("n0", "crash", step=16)
    story.again("n0", "crash", step=20)
    end = codec.encode(story.core.state)
    for cut in range(len(told)):
        core = Core()
        for number, (event, now_ns) in enumerate(told):
            if number == cut:
                core = Core(codec.decode_state(codec.encode(core.state)))
            body = codec.encode(event)
            core.handle(codec.decode_event(codec.kind_of(event), body), now_ns)
        assert codec.encode(core.state) == end, f"cut before event {cut}"
