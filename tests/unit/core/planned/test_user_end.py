"""A job that its user ends within a grace: at a saved step if there is time for one."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.reports import Storage
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState, PlannedKind
from everstep_controller.core.model.snapshots import Cadence
from everstep_controller.core.model.state import State
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.core.planned.user_end import choose_boundary
from everstep_controller.core.vault.directives import JobSnapshots
from everstep_controller.journal.codec import decode_state, encode
from unit.core.planned.test_restarts import PlannedStory
from unit.core.test_decisions import S, kinds

_GRACE_NS = 30 * S


class EndStory(PlannedStory):
    """A job that has made some steps of a tenth of a second, of which few are snapshotted."""

    def ask(self, node: str = "n0", grace_ns: int = _GRACE_NS) -> list[actions.Action]:
        asked = reports.EndAsked("SIGTERM", grace_ns)
        return self.tell(events.Reported(self.origin(node), self.now_ns, asked, "j"))

    def last_step(self) -> int:
        assert self.job.planned is not None
        assert self.job.planned.kind is PlannedKind.STOP
        assert self.job.planned.after_step is not None
        return self.job.planned.after_step

    def held_after(self) -> int | None:
        """Return after which step the vaults are told to hold the ranks."""
        snapshots = JobSnapshots(self.job.id)
        snapshots.adopt(self.job, self.core.state)
        snapshots.decide(self.job, self.core.state, self.now_ns)
        return snapshots.orders.hold_after


def training(every: int = 200) -> EndStory:
    story = EndStory()
    story.run()
    cadence = Cadence(every, 0, "", story.now_ns)
    story.tell(events.CadenceChosen(story.job.id, cadence))
    story.recoverable(10)
    return story


def ends(story: EndStory) -> str:
    """Let the ranks end; return what launchers are told."""
    done = story.stop_all()
    (told,) = {action.reason for action in done if isinstance(action, actions.EndJob)}
    assert story.job.state is JobState.ENDED
    return told


def test_it_ends_at_the_next_boundary_that_all_ranks_can_hear_of() -> None:
    story = training()
    assert actions.StopGeneration not in kinds(story.ask())
    last = story.last_step()
    assert last == 10 + restarts.margin(story.core.state, story.job)
    assert story.held_after() == last
    assert actions.StopGeneration in kinds(story.recoverable(last))
    assert ends(story) == (
        f"ended by its user on n0 after step {last}, which stays in memory of n0, n1 for 30 min"
    )


def test_where_every_step_is_saved_the_one_in_hand_is_the_last_if_there_is_no_time_for_more() -> (
    None
):
    story = training(every=1)
    story.ask(grace_ns=2 * S)
    assert story.last_step() == 11
    story.recoverable(11)
    assert "after step 11" in ends(story)


@pytest.mark.parametrize("grace_ns", [0, S, 4 * S])
def test_it_ends_at_once_where_no_step_fits_into_the_grace(grace_ns: int) -> None:
    story = training()
    assert actions.StopGeneration in kinds(story.ask(grace_ns=grace_ns))
    assert "are left" in story.incidents[-1].message
    assert "after step 10, which stays in memory" in ends(story)


def test_what_a_recovery_went_back_to_is_what_is_kept_though_nobody_had_told_of_it_before() -> None:
    story = training(every=1)
    story.exit_rank("n0")
    story.stop_all()
    story.choose(11)
    assert story.job.state is JobState.STARTING
    story.ask()
    assert "after step 11, which stays in memory" in ends(story)


def test_the_way_to_storage_counts_and_what_is_stored_is_said() -> None:
    story = training()
    story.tell(events.StoringMeasured(story.job.id, 28 * S))
    story.job.spec = replace(story.job.spec, storage=Storage("/ckpt"))
    assert actions.StopGeneration in kinds(story.ask())
    story.stop_all()
    assert story.job.state is JobState.CLOSING
    saved = events.FinalSaveEnded("j", story.job.generation.number, "step 10 is there", False)
    done = story.tell(saved)
    (told,) = {action.reason for action in done if isinstance(action, actions.EndJob)}
    assert told == "ended by its user on n0 after step 10, which is in storage"


def test_it_ends_when_the_grace_is_over_though_no_step_came() -> None:
    story = training()
    story.ask()
    timer = f"ending/{story.job.id}"
    due_ns = story.core.state.timers[timer]
    assert due_ns == story.now_ns + _GRACE_NS
    done = story.tell(events.TimerDue(timer), after_s=30)
    assert actions.StopGeneration in kinds(done)
    assert "was not saved in time" in story.incidents[-1].message
    assert "after step 10" in ends(story)


def test_the_shortest_of_several_graces_counts_and_the_first_who_asks_is_named() -> None:
    story = training()
    story.ask("n0")
    story.ask("n1", grace_ns=5 * S)
    assert story.job.ending.by_ns == story.now_ns + 5 * S
    done = story.tell(events.TimerDue("nothing"), after_s=5)
    story.train(11)
    assert story.job.state is JobState.STOPPING, done
    assert "by its user on n0" in ends(story)


def test_a_rank_that_dies_meanwhile_ends_it_and_starts_nothing() -> None:
    story = training()
    story.ask()
    story.exit_rank("n1")
    assert story.job.state is JobState.STOPPING
    assert "by its user on n0" in ends(story)


def test_a_job_without_snapshots_ends_at_once() -> None:
    story = EndStory()
    story.run()
    story.train(1, 2, 3)
    assert actions.StopGeneration in kinds(story.ask())
    why = "ended by its user on n0: at once, because it makes no snapshots"
    assert story.incidents[-1].message == why
    assert ends(story) == "ended by its user on n0"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (JobState.STARTING, "no step of generation 1 has been seen"),
        (JobState.WARMING, "no step of generation 1 has been seen"),
        (JobState.STOPPING, "its ranks are being stopped already"),
        (JobState.WAITING_CAPACITY, "none of its ranks runs"),
    ],
)
def test_why_no_step_is_waited_for_is_true_of_a_job_that_trains_and_tells_none(
    state: JobState, why: str
) -> None:
    job = training().job
    job.state = state
    assert choose_boundary(State(), job, 0) == (None, f"at once, because {why}")


def test_a_restart_that_was_planned_gives_way_to_the_end() -> None:
    story = training()
    story.restart(at_step=1000)
    story.ask()
    last = story.last_step()
    story.restart()
    story.drain("n1")
    assert story.last_step() == last
    story.recoverable(last)
    assert "by its user" in ends(story)


def test_a_stop_that_an_operator_ordered_gives_way_to_the_end_within_the_grace() -> None:
    story = training()
    story.tell(events.StopOrdered("j", "n0", "budget is spent", 1000), after_s=1)
    story.ask()
    last = story.last_step()
    assert last < 1000
    story.recoverable(last)
    assert "by its user" in ends(story)


def test_nobody_takes_it_back_but_by_starting_the_job_again() -> None:
    story = training()
    story.ask()
    last, wish = story.last_step(), story.job.planned
    assert wish is not None
    undo = "start j again when it has ended"
    assert forecast.undo(story.core.state, story.job, wish) == undo
    assert undo in restarts.cancel_problem(story.core.state, story.job)
    story.tell(events.RestartCancelled("j", "ops", "no"))
    assert story.last_step() == last


def test_a_journal_from_before_operators_and_users_stopped_jobs_in_the_same_way_is_read() -> None:
    story = training()
    story.ask()
    last = story.last_step()
    now = encode(story.core.state)
    before = now.replace(b'"kind":"stop"', b'"kind":"end"')
    assert before != now
    story.core = Core(decode_state(before))
    assert story.last_step() == last
    story.recoverable(last)
    assert "by its user" in ends(story)


def test_a_pause_of_automation_holds_up_no_end_of_a_user() -> None:
    story = training()
    story.tell(events.AutomationPaused("j", "ops", "look"))
    story.ask()
    story.recoverable(story.last_step())
    assert story.job.state is JobState.STOPPING


@pytest.mark.parametrize("node", ["n2", "n9"])
def test_nobody_else_ends_it(node: str) -> None:
    story = training()
    if node == "n2":
        story.join("n2")
    else:
        story.connect("n9")
    story.ask(node)
    assert not story.job.ending.asked_on
    assert story.job.state is JobState.RUNNING


def test_a_job_that_waits_or_forms_ends_at_once() -> None:
    story = EndStory()
    story.join("n0")
    story.ask()
    story.choose(None)
    assert story.job.ending.wanted or story.job.state is JobState.ENDED


def test_a_restart_of_the_controller_at_any_event_decides_the_same() -> None:
    story = training()
    story.ask()
    story.recoverable(story.last_step())
    story.stop_all()
    end = encode(story.core.state)
    for cut in range(len(story.told)):
        core = Core()
        for number, (event, now_ns) in enumerate(story.told):
            if number == cut:
                core = Core(decode_state(encode(core.state)))
            core.handle(event, now_ns)
        assert encode(core.state) == end, f"cut before event {cut}"
