"""Where the ranks of a generation meet: never on a suspect node, and at a port that is new."""

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from unit.core.jobs.test_job_endings import LongStory


def _story() -> LongStory:
    """A job on n0 and n1, of nodes that automation may not isolate."""
    story = LongStory(4, Settings(mode=Mode.ADVISE))
    story.run()
    story.train(1, 2)
    return story


def _meeting(story: LongStory, done: list[actions.Action]) -> tuple[str, int]:
    starts = [one for one in done if isinstance(one, actions.StartGeneration)]
    (place,) = {(one.master_address, one.master_port) for one in starts}
    first = next(one for one in starts if one.node_rank == 0)
    assert first.node == place[0]
    return place


def _missed_by_a_peer(story: LongStory, node: str) -> None:
    story.tell(events.PeerReported("n3", node, True))


def test_the_first_node_stays_where_it_is_while_it_is_trusted() -> None:
    story = _story()
    story.crash()
    assert _meeting(story, story.restore(1, 2))[0] == "n0"


def test_a_first_node_that_is_suspect_and_still_a_member_changes_places() -> None:
    story = _story()
    story.find("n0")
    assert story.state("n0") is NodeState.SUSPECT
    story.crash()
    assert _meeting(story, story.restore(1, 2))[0] == "n1"
    assert story.job.generation.members == ["n1", "n0"]


def test_a_first_node_that_its_peers_miss_changes_places() -> None:
    story = _story()
    _missed_by_a_peer(story, "n0")
    story.crash()
    assert _meeting(story, story.restore(1, 2))[0] == "n1"


def test_a_first_node_that_becomes_suspect_after_the_plan_changes_places() -> None:
    story = _story()
    story.crash()
    story.find("n0")
    assert _meeting(story, story.restore(1, 2))[0] == "n1"


def test_a_first_node_that_its_peers_miss_after_the_plan_changes_places() -> None:
    story = _story()
    story.crash()
    _missed_by_a_peer(story, "n0")
    assert _meeting(story, story.restore(1, 2))[0] == "n1"


def test_where_all_are_suspect_the_first_stays() -> None:
    story = _story()
    for node in ("n0", "n1"):
        story.find(node)
    story.crash()
    assert _meeting(story, story.restore(1, 2))[0] == "n0"


def test_a_spare_that_is_suspect_does_not_take_the_first_place() -> None:
    story = _story()
    story.join("n2")
    story.find("n2")
    story.lose("n0")
    story.stop_all()
    assert _meeting(story, story.restore(1, 2))[0] == "n1"
    assert set(story.job.generation.members) == {"n1", "n2"}


def test_every_generation_meets_at_the_port_that_was_offered_after_the_one_before() -> None:
    story = _story()
    ports = []
    for port in (5001, 5002, 5003):
        story.exit_rank("n1")
        for node in ("n0", "n1"):
            generation = story.job.generation.number
            stopped = events.Reported(
                story.origin(node), story.now_ns, reports.GenerationStopped(generation, port), "j"
            )
            story.tell(stopped)
        ports.append(_meeting(story, story.restore(1, 2))[1])
        story.train(story.job.generation.number + 1)
    assert ports == [5001, 5002, 5003]
