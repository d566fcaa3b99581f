"""Planned restarts: at a step that is recoverable, once, and accounted as planned."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.jobs import orders
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.planned import forecast
from everstep_controller.journal.codec import decode_state, encode
from unit.core.chosen_settings import SPARES_UNCHECKED
from unit.core.test_decisions import S, Story, kinds, launcher_joined

SETTINGS = Settings(mode=Mode.ENFORCE)


class PlannedStory(Story):
    """A job of two nodes, with a spare, that makes snapshots; it may also re-form."""

    reform = False
    told: list[tuple[events.Event, int]]

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        self.told = [*getattr(self, "told", []), (event, self.now_ns)]
        return done

    def join(self, node: str, *, token: str = "t", uid: int = 1) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(
                    uid=uid, token_sha256=token, nodes_min=1, reform=self.reform, restarts_max=9
                ),
                "j",
            )
        )

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def is_planned(self) -> bool:
        return self.job.planned is not None

    def state_of_job(self) -> JobState:
        return self.job.state

    def train(self, *steps: int, saved: int | None = None) -> list[actions.Action]:
        done: list[actions.Action] = []
        for step in steps:
            row = events.JobProgressed(
                job="j", generation=self.job.generation.number, first_step=step,
                end_ns=(self.now_ns + S // 10,), stall_ns=(0,), recoverable_step=saved,
            )  # fmt: skip
            done += self.tell(row)
        return done

    def restart(self, at_step: int | None = None, reason: str = "new code") -> None:
        self.tell(events.RestartOrdered("j", "ops", reason, at_step))

    def drain(self, node: str) -> list[actions.Action]:
        return self.tell(events.OperatorDrained(node, "ops", "fan"))

    def recoverable(self, step: int) -> list[actions.Action]:
        """Let the job come to a step, and that be safe."""
        self.train(*range((self.job.lineage.last_step or 0) + 1, step + 1))
        return self.tell(events.StepRecoverable("j", self.job.generation.number, step))

    def begin(self, *, spare: bool = True) -> "PlannedStory":
        self.run()
        if spare:
            self.join("n2")
        self.train(1, 2, 3, saved=3)
        return self


def test_a_restart_waits_for_the_step_that_was_named_to_be_recoverable() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=6)
    story.train(4, 5, saved=5)
    story.train(6)
    assert story.state_of_job() is JobState.RUNNING
    stopped = story.recoverable(6)
    assert story.state_of_job() is JobState.STOPPING
    assert [a.node for a in stopped if isinstance(a, actions.StopGeneration)] == ["n0", "n1"]
    story.stop_all()
    story.choose(6)
    assert (story.job.generation.number, story.job.generation.restore_step) == (2, 6)
    assert story.job.planned is None
    assert not [name for name in story.core.state.timers if name.startswith("planned/")]


def test_a_step_that_is_safe_before_all_ranks_have_told_of_it_is_waited_for_and_counts() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=4)
    story.tell(events.StepRecoverable("j", 1, 4))
    assert story.state_of_job() is JobState.RUNNING
    story.train(4)
    assert story.state_of_job() is JobState.STOPPING
    story.stop_all()
    totals = story.job.ledger.totals(story.now_ns + S)
    assert not [name for name in totals if name.startswith("lost.")]


def test_where_no_step_is_named_one_is_chosen_that_all_agents_hear_of_in_time() -> None:
    story = PlannedStory().begin()
    story.restart()
    planned = story.job.planned
    assert planned is not None
    assert planned.after_step is not None
    assert planned.after_step > 3


def test_one_step_that_looks_short_does_not_put_a_restart_far_away() -> None:
    story = PlannedStory().begin()
    story.train(*range(4, 12))
    end_ns = story.job.ledger.steps[-1].end_ns + S // 1000
    row = events.JobProgressed(
        job="j", generation=1, first_step=12, end_ns=(end_ns,), stall_ns=(0,), recoverable_step=11
    )
    story.tell(row)
    story.restart()
    assert story.job.planned is not None
    # 3 s of steps of 0.1 s each, and two more.
    assert (story.job.planned.after_step or 0) == 12 + 30 + 2


def test_a_step_chosen_by_steps_told_late_comes_nearer_when_they_show_their_length() -> None:
    story = PlannedStory().begin()
    end_ns = story.job.ledger.steps[-1].end_ns
    for step in range(4, 12):
        end_ns += S // 1000
        row = events.JobProgressed(
            job="j", generation=1, first_step=step, end_ns=(end_ns,), stall_ns=(0,),
            recoverable_step=step,
        )  # fmt: skip
        story.tell(row)
    story.restart()
    assert story.job.planned is not None
    chosen = story.job.planned.after_step or 0
    assert chosen > 1000
    story.train(*range(12, 20))
    assert 19 < (story.job.planned.after_step or 0) < 60


def test_an_operator_who_named_a_step_far_away_can_take_it_back() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=1_000_000)
    story.restart()
    assert story.job.planned is not None
    assert (story.job.planned.after_step or 0) < 100


def test_a_step_that_an_operator_named_stays() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=5000)
    story.train(*range(4, 20))
    assert story.job.planned is not None
    assert story.job.planned.after_step == 5000


def test_the_time_of_a_planned_restart_is_planned_and_no_fault_was_detected() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=4)
    story.train(4, saved=4)
    story.stop_all()
    totals = story.job.ledger.totals(story.now_ns + S)
    assert totals[Category.PLANNED] > 0
    assert not [name for name in totals if name.startswith("inc.") and totals[name]]


def test_the_same_order_twice_restarts_once() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=5)
    story.restart(at_step=5)
    story.train(4, 5, saved=5)
    story.stop_all()
    story.choose(5)
    assert story.job.planned is None
    assert len(story.incidents) == 1


def test_a_step_that_does_not_become_recoverable_in_time_is_not_waited_for() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=4)
    story.train(4)
    story.tell(events.TimerDue(f"planned/{story.job.id}"), after_s=301)
    assert story.state_of_job() is JobState.STOPPING
    assert "goes back to step 3" in story.job.reason


def test_a_job_without_snapshots_is_stopped_at_once_and_it_is_said() -> None:
    story = PlannedStory()
    story.run()
    story.restart()
    assert story.state_of_job() is JobState.STOPPING
    assert "makes no snapshots" in story.job.reason


def test_a_real_fault_meanwhile_satisfies_the_plan_and_is_no_planned_work() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=9)
    story.exit_rank("n0")
    story.stop_all()
    story.choose(3)
    assert story.job.planned is None
    assert story.incidents[-1].cause == "process"


def test_a_drained_node_is_left_at_a_step_boundary_for_a_spare() -> None:
    story = PlannedStory().begin()
    done = story.drain("n1")
    assert actions.StopGeneration not in kinds(done)
    planned = story.job.planned
    assert planned is not None
    assert planned.kind == "drain"
    story.recoverable(planned.after_step or 0)
    story.stop_all()
    assert story.job.generation.members == ["n0", "n2"]


def test_without_a_spare_a_drain_waits_for_one_and_a_fault_uses_the_node_meanwhile() -> None:
    story = PlannedStory().begin(spare=False)
    story.drain("n1")
    assert not story.is_planned()
    story.exit_rank("n0")
    story.stop_all()
    assert story.job.generation.members == ["n0", "n1"]
    story.choose(3)
    story.join("n2")
    assert story.is_planned()


def test_several_nodes_are_and_one_is_drained() -> None:
    story = PlannedStory().begin(spare=False)
    told = []
    for node in ("n1", "n0"):
        story.drain(node)
        waiting = forecast.pending(story.core.state, story.job)
        assert waiting is not None
        told.append(waiting.reason)
    assert told == ["n1 is drained: ops: fan", "n0, n1 are drained: ops: fan"]


def test_a_released_node_is_not_left() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    story.tell(events.OperatorReleased("n1", "ops", ""))
    assert story.job.planned is None
    assert story.core.state.nodes["n1"].usable


def test_isolating_a_drained_node_is_at_once() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    story.tell(events.OperatorIsolated("n1", "ops", "smoke"))
    assert story.state_of_job() is JobState.STOPPING


def test_a_paused_job_is_not_stopped_by_a_plan_until_it_is_resumed() -> None:
    story = PlannedStory().begin()
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.restart(at_step=4)
    story.train(4, saved=4)
    assert story.state_of_job() is JobState.RUNNING
    story.tell(events.AutomationResumed("j", "ops"))
    assert story.state_of_job() is JobState.STOPPING


def grown(settings: Settings | None = None) -> PlannedStory:
    """A job that goes on with one node of two, since the other was isolated."""
    story = PlannedStory(nodes=2, settings=settings)
    story.reform = True
    story.begin(spare=False)
    story.tell(events.OperatorIsolated("n1", "ops", "fan"))
    story.stop_all()
    story.choose(3)
    story.train(4, saved=4)
    return story


def test_a_smaller_job_grows_when_a_node_has_waited_for_it_and_not_before() -> None:
    story = grown()
    assert story.job.generation.members == ["n0"]
    for check in [
        a
        for a in story.tell(events.OperatorReleased("n1", "ops", ""))
        if isinstance(a, actions.RunCheck)
    ]:
        story.tell(
            events.Reported(story.origin("n1"), 0, reports.CheckFinished(check.id, True, "good"))
        )
    assert story.core.state.nodes["n1"].usable
    assert not story.is_planned()
    story.tell(events.TimerDue(f"growth/{story.job.id}"), after_s=61)
    planned = story.job.planned
    assert planned is not None
    story.recoverable(planned.after_step or 0)
    assert story.incidents[-1].cause == "growth"
    story.stop_all()
    assert story.job.generation.members == ["n0", "n1"]


def train_unsaved(story: PlannedStory, first_step: int) -> None:
    """Make steps for 70 s that are snapshotted, and none of which becomes recoverable."""
    for step in range(first_step, first_step + 70):
        row = events.JobProgressed(
            job="j", generation=story.job.generation.number, first_step=step,
            end_ns=(story.now_ns + S,), stall_ns=(1000,),
        )  # fmt: skip
        story.tell(row, after_s=1)


def test_a_job_whose_steps_are_not_saved_does_not_grow_before_they_are() -> None:
    story = grown()
    give_back(story, "n1")
    assert f"growth/{story.job.id}" in story.core.state.timers
    train_unsaved(story, first_step=5)
    assert f"growth/{story.job.id}" not in story.core.state.timers
    assert not story.is_planned()
    story.train(75, saved=75)
    assert f"growth/{story.job.id}" in story.core.state.timers, "it waits anew"


def test_growth_that_was_planned_waits_until_steps_are_saved_again() -> None:
    story = grown()
    give_back(story, "n1")
    story.tell(events.TimerDue(f"growth/{story.job.id}"), after_s=61)
    assert story.is_planned()
    train_unsaved(story, first_step=5)
    story.tell(events.TimerDue(f"planned/{story.job.id}"), after_s=300)
    assert (story.state_of_job(), story.is_planned()) == (JobState.RUNNING, True)
    story.train(75, saved=75)
    assert story.incidents[-1].cause == "growth"
    assert "step 75 is recoverable" in story.incidents[-1].message


def test_growth_is_not_more_often_than_the_setting_says() -> None:
    story = grown()
    story.job.grown_ns = story.now_ns
    story.tell(events.OperatorReleased("n1", "ops", ""))
    for check in [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]:
        story.tell(
            events.Reported(story.origin("n1"), 0, reports.CheckFinished(check.id, True, "good"))
        )
    due_ns = story.core.state.timers[f"growth/{story.job.id}"]
    assert due_ns == story.job.grown_ns + SETTINGS.growth_interval_min_ns


def give_back(story: PlannedStory, node: str) -> None:
    """Have an isolated node released, which then passes its check."""
    story.tell(events.OperatorReleased(node, "ops", ""))
    for check in [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]:
        report = reports.CheckFinished(check.id, True, "good")
        story.tell(events.Reported(story.origin(node), 0, report))


def grow(story: PlannedStory) -> None:
    """Have a smaller job grow as soon as it may."""
    timer = f"growth/{story.job.id}"
    story.tell(
        events.TimerDue(timer), after_s=(story.core.state.timers[timer] - story.now_ns) / S + 1
    )
    assert story.job.planned is not None
    story.recoverable(story.job.planned.after_step or 0)
    assert story.incidents[-1].cause == "growth"
    story.stop_all()
    story.choose(story.job.lineage.recoverable_step)
    assert story.job.generation.members == ["n0", "n1"]


def shrink(story: PlannedStory) -> None:
    """Take a node from a job that has grown, and let it go on without."""
    last = story.job.lineage.last_step or 0
    story.train(last + 1, saved=last + 1)
    story.tell(events.OperatorIsolated("n1", "ops", "fan"))
    story.stop_all()
    story.choose(last + 1)
    story.train(last + 2, saved=last + 2)
    assert story.job.generation.members == ["n0"]


def test_growth_that_repeats_keeps_its_distance_from_the_one_before() -> None:
    story = grown()
    give_back(story, "n1")
    grow(story)
    grown_ns = story.job.grown_ns
    assert grown_ns
    shrink(story)
    give_back(story, "n1")
    due_ns = story.core.state.timers[f"growth/{story.job.id}"]
    assert due_ns == grown_ns + SETTINGS.growth_interval_min_ns
    grow(story)
    assert story.job.grown_ns >= due_ns


def test_growth_that_repeats_waits_for_a_node_to_stay_as_the_first_one_did() -> None:
    # A check of it as a spare would be answered after the one that lets it wait.
    story = grown(replace(SPARES_UNCHECKED, growth_interval_min_ns=0))
    give_back(story, "n1")
    grow(story)
    shrink(story)
    give_back(story, "n1")
    due_ns = story.core.state.timers[f"growth/{story.job.id}"]
    assert due_ns == story.now_ns + SETTINGS.growth_delay_ns


def test_a_paused_job_does_not_grow_and_waits_anew_when_it_is_resumed() -> None:
    story = grown()
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    give_back(story, "n1")
    timer = f"growth/{story.job.id}"
    assert timer not in story.core.state.timers
    story.tell(events.OperatorDrained("n1", "ops", "fan"), after_s=999)
    story.tell(events.OperatorReleased("n1", "ops", ""))
    assert not story.is_planned()
    story.tell(events.AutomationResumed("j", "ops"))
    assert not story.is_planned()
    assert story.core.state.timers[timer] == story.now_ns + SETTINGS.growth_delay_ns


def test_a_job_that_is_paused_while_it_is_to_grow_goes_on_until_it_is_resumed() -> None:
    story = grown()
    give_back(story, "n1")
    story.tell(events.TimerDue(f"growth/{story.job.id}"), after_s=61)
    planned = story.job.planned
    assert planned is not None
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.recoverable(planned.after_step or 0)
    story.tell(events.TimerDue(f"planned/{story.job.id}"), after_s=999)
    assert story.state_of_job() is JobState.RUNNING
    story.tell(events.AutomationResumed("j", "ops"))
    assert (story.state_of_job(), story.incidents[-1].cause) == (JobState.STOPPING, "growth")


def test_a_controller_that_dies_after_any_event_carries_the_plan_out_all_the_same() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    story.restart()
    planned = story.job.planned
    assert planned is not None
    story.recoverable(planned.after_step or 0)
    story.stop_all()
    story.choose(planned.after_step)
    whole = encode(story.core.state)
    for died_after in range(len(story.told)):
        core = Core()
        for index, (event, at_ns) in enumerate(story.told):
            if index == died_after:
                core = Core(decode_state(encode(core.state)))
                core.due(at_ns)
            core.handle(event, at_ns)
        assert encode(core.state) == whole


def test_a_layout_that_was_learned_counts_as_having_snapshots() -> None:
    story = PlannedStory()
    story.run()
    point = story.job.lineage.branch[-1]
    assert isinstance(point, BranchPoint)
    story.job.lineage.branch[-1] = replace(point, layouts=("aa",))
    story.restart()
    assert story.state_of_job() is JobState.RUNNING


def test_what_was_made_ahead_is_not_used_after_a_restart_that_somebody_wanted() -> None:
    story = PlannedStory().begin()
    assert not orders.start(story.job, "n1").renew
    story.restart(at_step=4)
    story.recoverable(4)
    story.stop_all()
    starts = [one for one in story.choose(4) if isinstance(one, actions.StartGeneration)]
    assert [one.renew for one in starts] == [True, True]
    # As a controller derives it that was restarted before the node had confirmed it.
    assert orders.start(story.job, "n1").renew


def test_what_was_made_ahead_is_used_after_a_drain_and_after_a_fault() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    assert story.job.planned is not None
    step = story.job.planned.after_step or 0
    story.recoverable(step)
    story.stop_all()
    story.choose(step)
    assert (story.job.generation.number, story.job.generation.renew) == (2, False)
    story.exit_rank("n0")
    story.stop_all()
    story.choose(step)
    assert (story.job.generation.number, story.job.generation.renew) == (3, False)
