"""Nodes say that their ranks stand still, and that they go on."""

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_stalls import StillStory

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


def test_of_a_generation_that_does_not_run_and_of_nodes_that_take_no_part_nothing_is_kept() -> None:
    story = HangStory().begin()
    story.stand_still("n0", generation=2)
    story.stand_still("n2")
    assert story.job.generation.still == {}
    story.stand_still("n0")
    story.go_on("n0", generation=2)
    assert list(story.job.generation.still) == ["n0"]
