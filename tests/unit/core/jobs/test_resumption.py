"""Scripts that save their state themselves: their first step shows where they go on."""

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.jobs.restore_point import undecided_step
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.test_decisions import S, Story

_STEP_NS = S // 10


class _Unchanged:
    """A job on two nodes of which nobody hears more than that it runs, and what it prints."""

    def __init__(self) -> None:
        self.story = Story(nodes=3)
        self.story.join("n0")
        self.story.join("n1")
        self.start()
        for step in range(116):
            self.story.progress(step)

    @property
    def job(self) -> JobRecord:
        return self.story.core.state.newest("j")

    def start(self) -> list[actions.Action]:
        told = self.story.choose(None)
        for node in self.job.generation.members:
            phase = reports.PhaseReached(self.job.generation.number, reports.Phase.STARTED)
            self.story.tell(events.Reported(self.story.origin(node), self.story.now_ns, phase, "j"))
        return told

    def fail(self) -> list[actions.Action]:
        self.story.exit_rank("n1")
        self.story.stop_all()
        return self.start()

    def lost(self) -> int:
        """Return how many steps of a tenth of a second were made in vain."""
        totals = self.job.ledger.totals(self.story.now_ns)
        return round(totals.get(Category.LOST_RECOMPUTE, 0) / _STEP_NS)


def test_what_has_to_be_made_again_is_known_at_the_first_step_and_not_before() -> None:
    world = _Unchanged()
    told = world.fail()
    assert world.lost() == 0
    assert undecided_step(world.job) == 115
    world.story.progress(100)
    assert undecided_step(world.job) is None
    assert world.lost() == 16
    assert world.job.ledger.step_count == 101
    sentences = [action.reason for action in told if isinstance(action, actions.StartGeneration)]
    assert all("starts without a snapshot" in sentence for sentence in sentences)
    assert all("where the script goes on by itself" in sentence for sentence in sentences)
    assert len(sentences) == 2


def test_of_ranks_that_nobody_hears_it_is_not_said_that_all_make_steps() -> None:
    world = _Unchanged()
    assert world.job.reason == "it makes steps"
    for node in world.job.generation.members:
        phase = reports.PhaseReached(1, reports.Phase.ATTACHED)
        world.story.tell(events.Reported(world.story.origin(node), world.story.now_ns, phase, "j"))
    world.job.state = JobState.STALLED
    world.story.progress(116)
    assert world.job.reason.startswith("all ranks make steps again")


def test_people_are_told_with_which_step_it_goes_on() -> None:
    world = _Unchanged()
    world.fail()
    world.story.now_ns += S
    row = events.JobProgressed(
        job="j", generation=2, first_step=100, end_ns=(world.story.now_ns,), stall_ns=(0,)
    )
    said = [a.message for a in world.story.tell(row) if isinstance(a, actions.Announce)]
    again = "what it had made from there on, up to step 115, is made again"
    assert f"j goes on with step 100 by itself: {again}" in said
    (incident,) = world.story.incidents
    assert (incident.step_restored, incident.step_resumed) == (None, 100)


def _row(world: _Unchanged, generation: int, *steps: int) -> list[str]:
    """Tell of consecutive steps that end now; return what people are told of it."""
    ends = (world.story.now_ns,) * len(steps)
    row = events.JobProgressed(
        job="j", generation=generation, first_step=steps[0], end_ns=ends, stall_ns=(0,) * len(steps)
    )
    told = world.story.tell(row)
    return [one.message for one in told if isinstance(one, actions.Announce)]


def test_steps_that_are_told_late_while_a_job_is_stopped_are_no_resumption() -> None:
    world = _Unchanged()
    world.story.exit_rank("n1")
    assert world.job.state is JobState.STOPPING
    assert not [said for said in _row(world, 1, 116, 117) if "goes on" in said]
    (incident,) = world.story.incidents
    assert (incident.step_before, incident.step_resumed) == (117, None)
    # The same of a generation of which no step was known when its stop was ordered.
    world.story.stop_all()
    world.start()
    world.story.exit_rank("n1")
    assert world.job.state is JobState.STOPPING
    assert not [said for said in _row(world, 2, 100) if "goes on" in said]
    assert world.job.ledger.step_count == 100  # the ledger takes them back all the same
    world.story.stop_all()
    world.start()
    again = "what it had made from there on, up to step 99, is made again"
    assert f"j goes on with step 90 by itself: {again}" in _row(world, 3, 90)


def test_a_second_fault_takes_back_only_what_is_made_again() -> None:
    world = _Unchanged()
    for resumed, newest in ((100, 160), (150, 170), (150, 200)):
        world.fail()
        for step in range(resumed, newest):
            world.story.progress(step)
    assert world.job.ledger.step_count == 200
    assert world.lost() == 16 + 10 + 20


def test_a_script_that_saves_nothing_begins_again_and_loses_all() -> None:
    world = _Unchanged()
    world.fail()
    world.story.progress(0)
    assert (world.lost(), world.job.ledger.step_count) == (116, 1)


def test_a_script_that_saves_each_step_loses_none() -> None:
    world = _Unchanged()
    world.fail()
    world.story.progress(116)
    assert (world.lost(), world.job.ledger.step_count) == (0, 117)


def test_a_generation_that_dies_before_its_first_step_decides_nothing() -> None:
    world = _Unchanged()
    world.fail()
    world.fail()
    assert (world.lost(), undecided_step(world.job)) == (0, 115)
    world.story.progress(100)
    assert world.lost() == 16


def test_where_a_snapshot_is_restored_the_loss_is_known_at_once() -> None:
    world = _Unchanged()
    world.story.tell(
        events.JobProgressed(
            job="j", generation=1, first_step=116, end_ns=(world.story.now_ns,), stall_ns=(0,),
            recoverable_step=114,
        )
    )  # fmt: skip
    world.story.exit_rank("n1")
    world.story.stop_all()
    assert undecided_step(world.job) is None
    world.story.choose(114)
    assert (world.job.ledger.step_count, world.lost()) == (115, 2)


def test_a_job_that_has_made_steps_once_is_not_taken_for_one_that_cannot_start() -> None:
    world = _Unchanged()
    world.fail()
    for node in ("n0", "n1"):
        exit = reports.RankExited(
            generation=2,
            rank=0,
            exit_code=1,
            signal=0,
            last_line="",
            exception="ModuleNotFoundError: No module named 'torch'",
            kind="import",
        )
        world.story.tell(events.Reported(world.story.origin(node), world.story.now_ns, exit, "j"))
    world.story.stop_all()
    assert world.job.state is JobState.REPLANNING, world.job.reason
