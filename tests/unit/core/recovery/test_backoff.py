"""What ends a job's ranks from outside never ends the job: its attempts are ever further apart."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.failures.classification import KINDS, side
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.hangs.response import MANNERS, Manner
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.hang import PROVED
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.recovery.backoff import backoff_ns
from everstep_controller.core.recovery.causes import OUTSIDE
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_rollback import BadSteps
from unit.core.recovery.test_blame import WEAR
from unit.core.recovery.test_lost_jobs import LOST, Old
from unit.core.test_decisions import XID, S

ERRORS = {
    "storage": "OSError: [Errno 5] Input/output error: '/data/shard-7'",
    "network": "ConnectionRefusedError: [Errno 111] Connection refused",
    "collective": "RuntimeError: Connection closed by peer [10.0.0.2]:4242",
}
FROM_OUTSIDE = [kind for kind in KINDS if side(kind) in OUTSIDE]


class Outside(BadSteps):
    """A job that is ended by something else again and again."""

    @property
    def timer(self) -> str:
        return f"backoff/{self.job.id}"

    def state_of_job(self) -> JobState:
        return self.job.state

    def choose(self, step: int | None, lost: str = "") -> list[actions.Action]:
        """The catalogue finds a step of the first generation."""
        number = self.job.generation.number
        of = 0 if step is None else 1
        return self.tell(
            events.RecoveryStepChosen(
                job="j", generation=number, step=step, step_generation=of, lost=lost
            )
        )

    def suffer(self, kind: str, node: str = "n0", *, step: int | None = None) -> None:
        self.again(node, kind, exception=ERRORS.get(kind, ""), step=step)

    def wait_s(self) -> float:
        """Return how long the next attempt is waited for."""
        due_ns = self.core.state.timers.get(self.timer)
        return 0 if due_ns is None else (due_ns - self.job.since_ns) / S

    def wait_out(self) -> None:
        """Let the wait pass, and the next generation begin."""
        if self.job.state is JobState.BACKING_OFF:
            self.now_ns = max(self.now_ns, self.core.state.timers[self.timer])
            self.tell(events.TimerDue(self.timer), 0)
        if self.job.state is JobState.REPLANNING:
            self.choose(None if self.job.lineage.last_step is None else 0)


def trained(settings: Settings | None = None) -> Outside:
    story = Outside(settings=settings)
    story.run()
    story.go(1, 16)
    return story


def kill_ranks(kind: str) -> Callable[[Outside, str], None]:
    return lambda story, node: story.suffer(kind, node, step=16)


def end_launcher(story: Outside, node: str) -> None:
    gone = reports.LauncherLeft("its process is gone", by_user=False)
    story.tell(events.Reported(story.origin(node), story.now_ns, gone, "j"))
    story.stop_all()
    story.join(node)


CAUSES = {kind: kill_ranks(kind) for kind in FROM_OUTSIDE} | {"launcher": end_launcher}


@pytest.mark.parametrize("cause", CAUSES)
def test_no_number_of_ends_from_outside_ends_a_job_that_has_trained(cause: str) -> None:
    story = trained()
    for turn in range(12 * story.job.spec.restarts_max):
        CAUSES[cause](story, f"n{turn % 2}")
        assert story.state_of_job() is not JobState.ENDED, turn
        story.wait_out()
        assert story.state_of_job() is JobState.STARTING, turn
    assert story.job.recovery.restarts_without_progress == 0
    assert not story.job.ending.wanted


@pytest.mark.parametrize("kind", [kind for kind, proved in PROVED.items() if not proved])
def test_no_hang_that_proves_nothing_has_a_remedy_that_ends_a_job(kind: object) -> None:
    ends = {one for one, manner in MANNERS.items() if manner in (Manner.END, Manner.ONCE_MORE)}
    assert kind not in ends


def test_what_the_program_does_still_counts_among_ends_from_outside() -> None:
    story = trained()
    for turn in range(story.job.spec.restarts_max + 1):
        story.suffer("killed", step=16)
        story.wait_out()
        story.again("n0", "exception", exception=f"ValueError: batch {'abcdef'[turn]}", step=16)
    assert story.state_of_job() is JobState.ENDED
    assert "given up after 2 restarts without a new step" in story.job.reason


def test_a_death_that_nobody_classified_counts_as_ever() -> None:
    story = trained()
    for _ in range(story.job.spec.restarts_max + 1):
        story.exit_rank("n0")
        story.stop_all()
        story.wait_out()
    assert story.state_of_job() is JobState.ENDED


def test_ranks_that_lose_those_that_have_ended_well_are_the_programs_doing() -> None:
    story = trained()
    for _ in range(story.job.spec.restarts_max + 1):
        assert story.state_of_job() is JobState.STARTING or not story.job.recovery.restarts
        report = reports.GenerationFinished(story.job.generation.number)
        story.tell(events.Reported(story.origin("n0"), story.now_ns, report, "j"))
        story.suffer("collective", "n1", step=16)
    assert story.state_of_job() is JobState.ENDED
    assert "given up after 2 restarts" in story.job.reason
    assert "when all ranks on n0 had ended well" in story.job.reason


def test_the_first_attempt_comes_at_once_and_each_one_after_it_twice_as_late() -> None:
    story, waited = trained(), []
    for _ in range(10):
        story.suffer("storage", step=16)
        waited.append(round(story.wait_s()))
        story.wait_out()
    assert waited == [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_it_is_never_longer_than_the_setting_and_with_none_there_is_no_wait() -> None:
    for ends in range(80):
        assert backoff_ns(Settings(restart_backoff_max_ns=30 * S), ends) <= 30 * S
        assert backoff_ns(Settings(restart_backoff_max_ns=0), ends) == 0


def test_a_new_step_begins_it_anew() -> None:
    story = trained()
    for _ in range(4):
        story.suffer("network", step=16)
        story.wait_out()
    story.go(1, 17)
    story.suffer("network", step=17)
    assert story.state_of_job() is JobState.STARTING


def test_people_and_launchers_are_told_why_it_waits_and_what_to_do() -> None:
    story = trained()
    story.suffer("storage", step=16)
    story.die("n0", "storage", exception=ERRORS["storage"], step=16)
    done = [*story.stop_all()]
    said = story.job.reason
    assert story.state_of_job() is JobState.BACKING_OFF
    for words in ("Input/output error", "5 s after", "file system", "everstep job j restart"):
        assert words in said, words
    held = [one for one in done if isinstance(one, actions.HoldLauncher)]
    assert {one.node for one in held} == {"n0", "n1"}
    assert all("the next attempt" in one.reason for one in held)
    told = [one for one in done if isinstance(one, actions.Announce)]
    assert "JobBackingOff" in {one.reason for one in told}


def test_the_same_at_the_same_step_on_several_nodes_has_people_look_at_the_script_too() -> None:
    story = trained()
    for turn in range(5):
        story.suffer("network", f"n{turn % 2}", step=16)
        if turn == 4:
            break
        story.wait_out()
    assert "after step 16 on n0, n1: look also at the address" in story.job.reason


def test_the_same_on_one_node_of_several_has_people_look_at_that_node() -> None:
    story = trained()
    for _ in range(4):
        story.wait_out()
        story.suffer("storage", "n1", step=16)
    assert "it is n1 each time: 'everstep drain n1' tries without it" in story.job.reason


def test_the_wait_is_accounted_for_as_what_it_is() -> None:
    story = trained()
    for _ in range(3):
        story.suffer("storage", step=16)
        story.wait_out()
    spent = story.job.ledger.totals(story.now_ns)
    assert round(spent[Category.BACKOFF] / S) == 15
    assert sum(spent.values()) == story.job.ledger.wall_ns(story.now_ns)


def test_an_operators_restart_ends_the_wait_and_a_stop_ends_the_job() -> None:
    for order, then in (
        (events.RestartOrdered("j", "ops", "it is mounted again"), JobState.REPLANNING),
        (events.StopOrdered("j", "ops", "budget is spent"), JobState.ENDED),
    ):
        story = trained()
        for _ in range(6):
            story.wait_out()
            story.suffer("storage", step=16)
        assert story.state_of_job() is JobState.BACKING_OFF
        story.tell(order)
        assert story.state_of_job() is then
        if then is JobState.REPLANNING:
            story.choose(0)
            assert story.job.generation.renew, "the script may have been corrected"
            assert story.job.planned is None


def _waited_long() -> Outside:
    story = trained()
    for _ in range(6):
        story.wait_out()
        story.suffer("storage", step=16)
    return story


def test_a_restart_that_is_ordered_while_ranks_are_stopped_is_not_put_off() -> None:
    story = _waited_long()
    story.wait_out()
    story.die("n0", "storage", exception=ERRORS["storage"], step=16)
    story.tell(events.RestartOrdered("j", "ops", "it is mounted again"))
    story.stop_all()
    assert story.state_of_job() is JobState.REPLANNING
    story.choose(0)
    assert (story.job.generation.renew, story.job.planned) == (True, None)


def test_nor_is_one_that_is_ordered_while_automation_is_paused() -> None:
    story = _waited_long()
    story.tell(events.AutomationPaused("j", "ops", "we look"))
    story.tell(events.RestartOrdered("j", "ops", "it is mounted again"))
    assert story.state_of_job() is JobState.WAITING_CAPACITY
    story.tell(events.AutomationResumed("j", "ops"))
    assert story.state_of_job() is JobState.REPLANNING


def test_a_finding_that_nothing_is_done_about_explains_an_end_from_outside_once() -> None:
    story = trained(Settings(mode=Mode.ADVISE))
    story.find("n1", WEAR)
    waited = []
    for _ in range(4 * story.job.spec.restarts_max):
        story.suffer("storage", "n1", step=16)
        waited.append(round(story.wait_s()))
        story.wait_out()
    assert waited[:5] == [0, 0, 5, 10, 20]
    assert story.state_of_job() is JobState.STARTING


def test_nor_does_it_end_a_job_on_one_node_by_what_comes_from_outside() -> None:
    story = Lost()
    story.begin("n1")
    story.choose(None)
    story.progress(0)
    story.find("n1", replace(XID, mode=Mode.ADVISE))
    for _ in range(4 * story.job.spec.restarts_max):
        story.suffer("killed", "n1", step=0)
        assert story.state_of_job() is not JobState.ENDED, story.job.reason
        story.wait_out()


def test_nor_where_its_finding_comes_after_each_end_and_is_over_before_the_next() -> None:
    story = Lost()
    story.core.state.settings = replace(story.core.state.settings, mode=Mode.ADVISE)
    story.begin("n1")
    story.choose(None)
    story.progress(0)
    for _ in range(4 * story.job.spec.restarts_max):
        story.suffer("killed", "n1", step=0)
        assert story.state_of_job() is not JobState.ENDED, story.job.reason
        story.find("n1", replace(XID, mode=Mode.ADVISE))
        story.wait_out()
        over = reports.FindingCleared(XID.component, XID.condition, "ok")
        story.tell(events.Reported(story.origin("n1"), story.now_ns, over))


def test_a_node_that_is_lost_minutes_later_does_not_take_the_blame_for_all_before_it() -> None:
    story = _waited_long()
    while story.now_ns < 3600 * S:
        story.wait_out()
        story.suffer("killed", "n0", step=16)
    story.join("n2")
    story.now_ns += 300 * S
    story.lose("n1")
    first, then = story.incidents[-2:]
    assert (first.cause, first.node) == ("process", "n0")
    assert (then.cause, then.node) == ("node", "n1")
    assert then.onset_ns == first.over_ns > 3900 * S
    assert story.job.generation.members == ["n0", "n2"]
    spent = story.job.ledger.totals(story.now_ns)
    assert sum(spent.values()) == story.job.ledger.wall_ns(story.now_ns)


def test_a_drain_has_it_go_on_at_once_where_another_node_can_take_the_ranks() -> None:
    story = _waited_long()
    story.tell(events.OperatorDrained("n0", "ops", "a fan is loud"))
    assert story.state_of_job() is JobState.BACKING_OFF, "it would only be where it is"
    story.join("n2")
    assert story.state_of_job() is JobState.REPLANNING
    assert story.job.generation.members == ["n2", "n1"]
    assert story.timer not in story.core.state.timers


def test_a_finding_explains_what_ranks_die_of_also_hours_after_the_first_of_them() -> None:
    story = _waited_long()
    while story.now_ns < 4 * 3600 * S:
        story.wait_out()
        story.suffer("storage", "n1", step=16)
    story.join("n2")
    story.now_ns += 300 * S
    story.find("n1", WEAR)
    story.wait_out()
    story.suffer("storage", "n1", step=16)
    assert story.state("n1") is NodeState.VALIDATING
    assert "n1 is at fault by its own word" in story.job.recovery.judgements[-1].sentence
    assert story.job.generation.members == ["n0", "n2"]


def test_one_that_comes_soon_after_such_an_end_ends_the_wait() -> None:
    story = _waited_long()
    while story.now_ns < 4 * 3600 * S:
        story.wait_out()
        story.suffer("storage", "n1", step=16)
    story.join("n2")
    story.find("n1", WEAR)
    assert story.state("n1") is NodeState.VALIDATING
    assert story.state_of_job() is JobState.REPLANNING
    assert story.job.generation.members == ["n0", "n2"]


def test_nodes_that_come_and_paused_automation_do_not_shorten_it() -> None:
    story = trained()
    for _ in range(3):
        story.wait_out()
        story.suffer("storage", step=16)
    story.join("n2")
    assert story.state_of_job() is JobState.BACKING_OFF
    story.tell(events.AutomationPaused("j", "ops", "we look"))
    story.tell(events.AutomationResumed("j", "ops"))
    assert story.state_of_job() is JobState.BACKING_OFF


def test_a_node_that_turns_out_to_be_lost_explains_it_and_a_spare_takes_its_place_at_once() -> None:
    story = trained()
    for _ in range(6):
        story.wait_out()
        story.suffer("collective", step=16)
    story.join("n2")
    assert story.state_of_job() is JobState.BACKING_OFF
    story.lose("n1")
    assert story.state_of_job() is JobState.REPLANNING
    assert story.job.generation.members == ["n0", "n2"]
    assert story.timer not in story.core.state.timers


def test_it_goes_on_in_a_controller_that_starts_again() -> None:
    story = trained()
    for _ in range(4):
        story.wait_out()
        story.suffer("storage", step=16)
    story.core = Core(decode_state(encode(story.core.state)))
    assert story.state_of_job() is JobState.BACKING_OFF
    story.wait_out()
    assert story.state_of_job() is JobState.STARTING
    assert story.job.recovery.outside_ends == 4


def test_it_says_nothing_of_the_state_that_was_restored() -> None:
    story = trained()
    for _ in range(4):
        story.suffer("storage", step=1)
        story.wait_out()
    assert restore_point.avoided(story.job) == ()
    story = trained()
    for _ in range(4):
        story.suffer("state", step=1)
        story.wait_out()
    assert restore_point.avoided(story.job) == ((1, 0),)


# --- a program that names what was never there ----------------------------------------------------


def fresh() -> Outside:
    story = Outside()
    story.join("n0")
    story.join("n1")
    story.choose(None)
    return story


@pytest.mark.parametrize("kind", ["network", "storage"])
def test_a_job_that_never_made_a_step_and_dies_of_one_error_everywhere_is_ended(kind: str) -> None:
    story = fresh()
    for turn in range(story.job.spec.restarts_max + 1):
        story.wait_out()
        assert story.state_of_job() is JobState.STARTING
        story.suffer(kind, f"n{turn % 2}")
    assert (story.state_of_job(), story.job.outcome) == (JobState.ENDED, "failed")
    assert "what it names was never there" in story.job.reason
    assert ERRORS[kind] in story.job.reason


@pytest.mark.parametrize("kind", ["killed", "state", "collective"])
def test_what_no_program_names_does_not_end_even_that_one(kind: str) -> None:
    story = fresh()
    for turn in range(4 * story.job.spec.restarts_max):
        story.wait_out()
        story.suffer(kind, f"n{turn % 2}")
    assert story.state_of_job() is JobState.BACKING_OFF


def test_nor_does_what_comes_on_one_node_of_several_or_differs_or_lived_long() -> None:
    story = fresh()
    for _ in range(4 * story.job.spec.restarts_max):
        story.wait_out()
        story.suffer("storage", "n1")
    assert story.state_of_job() is JobState.BACKING_OFF
    story = fresh()
    for turn in range(4 * story.job.spec.restarts_max):
        story.wait_out()
        story.suffer(("storage", "network")[turn % 2], f"n{turn % 2}")
    assert story.state_of_job() is JobState.BACKING_OFF
    story = fresh()
    for turn in range(4 * story.job.spec.restarts_max):
        story.wait_out()
        story.now_ns += 700 * S  # it trains, and nobody sees its steps
        story.suffer("storage", f"n{turn % 2}")
    assert story.state_of_job() is JobState.STARTING


def test_nor_does_any_outage_where_a_generation_of_a_script_without_seen_steps_has_lived() -> None:
    story = fresh()
    story.now_ns += 3 * 86_400 * S  # it trains for three days
    for turn in range(4 * story.job.spec.restarts_max):
        story.suffer("storage", f"n{turn % 2}")
        story.wait_out()
        assert story.state_of_job() is JobState.STARTING, story.job.reason


def test_how_long_a_generation_lived_ends_with_its_rank_and_not_with_a_pause() -> None:
    story = fresh()
    for turn in range(story.job.spec.restarts_max + 1):
        story.wait_out()
        story.tell(events.AutomationPaused("j", "ops", "we look"))
        story.suffer("storage", f"n{turn % 2}")
        story.now_ns += 3600 * S
        story.tell(events.AutomationResumed("j", "ops"))
    assert story.state_of_job() is JobState.ENDED
    assert "what it names was never there" in story.job.reason


class Lost(Old, Outside):
    """A job on one node whose journal is lost."""


def test_nor_does_any_outage_where_the_journal_that_began_the_job_is_lost() -> None:
    story = Lost(0)
    story.rebuild(("n1", LOST))
    story.connect("n1", jobs=(LOST,))
    story.begin("n1", "j-4", running=1)
    story.stopped("n1", 1)
    story.choose(None)
    for _ in range(4 * story.job.spec.restarts_max):
        assert story.state_of_job() is JobState.STARTING, story.job.reason
        story.suffer("storage", "n1")
        story.wait_out()
