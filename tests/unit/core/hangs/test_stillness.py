"""Nodes say that their ranks stand still, and that they go on."""

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_stalls import StillStory
from unit.core.test_decisions import S

_USUAL_NS = 700_000_000


class HangStory(StillStory):
    """A job of two nodes that say when their ranks stand still."""

    def stand_still(
        self, *nodes: str, generation: int = 1, blind: str = ""
    ) -> list[actions.Action]:
        done: list[actions.Action] = []
        for node in nodes:
            last = self.job.ledger.steps[-1]
            report = reports.RanksStandStill(
                generation=generation,
                step=last.step,
                since_boot_ns=1,
                usual_ns=_USUAL_NS,
                blind=blind,
            )
            done += self.tell(events.Reported(self.origin(node), last.end_ns, report, "j"))
        return done

    def go_on(self, node: str, generation: int = 1) -> list[actions.Action]:
        report = reports.RanksGoOn(generation, 1)
        return self.tell(events.Reported(self.origin(node), self.now_ns, report, "j"))


def test_a_node_stands_still_until_it_says_that_it_goes_on() -> None:
    story = HangStory().begin()
    story.stand_still("n0", blind="no recorder")
    assert list(story.job.generation.still) == ["n0"]
    assert story.job.generation.still["n0"].blind == "no recorder"
    assert decode_state(encode(story.core.state)) == story.core.state
    story.go_on("n0")
    assert story.job.generation.still == {}


def test_a_report_of_no_steps_is_no_step() -> None:
    story = HangStory()
    story.join("n0")
    story.join("n1")
    story.choose(None)
    nothing = events.JobProgressed(job="j", generation=1, first_step=0, end_ns=(), stall_ns=())
    before = story.job.state
    story.tell(nothing)
    assert story.job.state is before


def test_a_job_that_runs_without_a_known_step_stands_still_by_the_word_of_its_nodes() -> None:
    story = HangStory().begin()
    story.job.ledger.steps.take_after(-1)
    assert not story.job.ledger.steps
    for node in ("n0", "n1"):
        report = reports.RanksStandStill(
            generation=1, step=None, since_boot_ns=1, usual_ns=_USUAL_NS
        )
        story.tell(events.Reported(story.origin(node), story.now_ns, report, "j"))
    assert story.job.state is JobState.STALLED


def _young(story: HangStory, node: str) -> JobState:
    report = reports.RanksStandStill(
        generation=1, step=None, since_boot_ns=1, usual_ns=_USUAL_NS, young=True
    )
    story.now_ns += 3 * S
    story.tell(events.Reported(story.origin(node), story.now_ns, report, "j"))
    return story.job.state


def test_the_word_of_a_node_that_has_seen_little_counts_where_another_one_tells_steps() -> None:
    story = HangStory().begin()
    story.stand_still("n0")
    assert _young(story, "n1") is JobState.STALLED


def test_nodes_that_see_no_move_do_not_say_that_a_job_stands_still_whose_steps_nobody_hears() -> (
    None
):
    story = HangStory().begin()
    unseeing = reports.RanksStandStill(
        generation=1,
        step=None,
        since_boot_ns=1,
        usual_ns=_USUAL_NS,
        blind="no recorder",
        young=True,
    )
    story.tell(events.Reported(story.origin("n1"), story.now_ns, unseeing, "j"))
    # The node that prints the steps is away, so that none is heard of.
    story.core.state.nodes["n0"].liveness.connected = False
    story.now_ns += 30 * S
    story.tell(events.Reported(story.origin("n1"), story.now_ns, unseeing, "j"))
    assert not story.job.hang.found_ns
    story.core.state.nodes["n0"].liveness.connected = True
    story.stand_still("n0")
    # Steps alone tell: the ranks are looked at before anybody is told.
    assert story.job.hang.found_ns == story.now_ns


def test_the_word_of_nodes_that_have_seen_little_does_not_count_where_nobody_tells_steps() -> None:
    story = HangStory().begin()
    story.job.ledger.steps.take_after(1)  # weights and caches come before the third
    assert _young(story, "n0") is JobState.RUNNING
    assert _young(story, "n1") is JobState.RUNNING
    story.job.ledger.steps.take_after(-1)
    assert _young(story, "n0") is JobState.RUNNING


def test_a_job_of_which_some_ranks_have_ended_well_is_at_its_end_and_not_stalled() -> None:
    story = HangStory().begin()
    done = reports.GenerationFinished(1)
    story.tell(events.Reported(story.origin("n0"), story.now_ns, done, "j"))
    story.stand_still("n1")
    assert story.job.state is JobState.RUNNING
    story.tell(events.Reported(story.origin("n1"), story.now_ns, done, "j"))
    assert story.job.ending.succeeded


def test_of_a_generation_that_does_not_run_and_of_nodes_that_take_no_part_nothing_is_kept() -> None:
    story = HangStory().begin()
    story.stand_still("n0", generation=2)
    story.stand_still("n2")
    assert story.job.generation.still == {}
    story.stand_still("n0")
    story.go_on("n0", generation=2)
    assert list(story.job.generation.still) == ["n0"]
