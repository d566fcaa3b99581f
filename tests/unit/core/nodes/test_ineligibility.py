"""Launchers that wait are told why, what ends it, and when it has changed."""

from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.claims import why_ineligible
from unit.core.test_decisions import S, Story

SETTINGS = Settings(mode=Mode.ENFORCE)


def _notices(done: list[actions.Action], node: str) -> list[str]:
    return [a.reason for a in done if isinstance(a, actions.HoldLauncher) and a.node == node]


def _maintain(story: Story, node: str) -> list[actions.Action]:
    begin_ns = story.now_ns + S // 10
    return story.tell(
        events.MaintenanceOrdered(
            nodes=(node,), begin_ns=begin_ns, end_ns=begin_ns + 3600 * S, operator="ann",
            reason="fans",
        )
    )  # fmt: skip


def test_a_launcher_on_a_node_in_maintenance_hears_until_when_and_what_ends_it() -> None:
    story = Story()
    _maintain(story, "n0")
    (told,) = _notices(story.join("n0"), "n0")
    assert told.startswith("n0 takes no ranks until 1970-01-01T01:00:")
    assert "(ann: fans)" in told
    assert told.endswith("everstep maintenance cancel m-1")


def test_one_on_an_isolated_or_drained_node_hears_who_gives_it_back() -> None:
    isolated, drained = Story(), Story()
    isolated.tell(events.OperatorIsolated("n0", "ann", "smoke"))
    drained.tell(events.OperatorDrained("n0", "ann", "fan"))
    for story, why in ((isolated, "ann: smoke"), (drained, "ann: fan")):
        (told,) = _notices(story.join("n0"), "n0")
        assert why in told
        assert told.endswith("everstep release n0")


def test_one_on_a_node_that_automation_claimed_hears_why_and_what_gives_it_back() -> None:
    story = Story()
    story.find("n0")
    (told,) = _notices(story.join("n0"), "n0")
    assert "Xid 79" in told
    assert told.endswith("when it is repaired: everstep release n0")


def test_the_others_of_the_job_hear_which_node_takes_no_ranks() -> None:
    story = Story()
    story.tell(events.OperatorIsolated("n0", "ann", "smoke"))
    story.join("n0")
    told = _notices(story.join("n1"), "n1")
    assert told[-1] == (
        "1 of 2 nodes have joined, it needs 2; n0 takes none now ('everstep nodes' tells why)"
    )


def test_a_spare_whose_node_ceases_to_take_ranks_hears_it_at_once_and_again_when_it_is_over() -> (
    None
):
    story = Story()
    story.run()
    story.join("n2")
    done = story.tell(events.OperatorDrained("n2", "ann", "fan"))
    (told,) = _notices(done, "n2")
    assert "everstep release n2" in told
    assert told.endswith("j goes on without it")
    (back,) = _notices(story.tell(events.OperatorReleased("n2", "ann", "")), "n2")
    assert "waiting as a spare" in back


def test_a_job_that_waits_for_the_end_of_maintenance_says_so_on_every_terminal() -> None:
    story = Story(nodes=2)
    story.run()
    done = _maintain(story, "n1") + story.tell(events.TimerDue("maintenance/m-1"), 1)
    assert [a.node for a in done if isinstance(a, actions.StopGeneration)] == ["n0", "n1"]
    done = story.stop_all()
    assert story.core.state.newest("j").state is JobState.WAITING_CAPACITY
    (there,) = set(_notices(done, "n1"))
    assert "everstep maintenance cancel m-1" in there
    assert not _notices(story.tell(events.OperatorDrained("n1", "bob", "x")), "n0")
    (here,) = set(_notices(done, "n0"))
    assert here == (
        "1 node can take ranks, it needs 2; n1 takes none now ('everstep nodes' tells why)"
    )


def test_what_has_not_changed_is_not_said_again() -> None:
    story = Story()
    story.run()
    story.join("n2")
    story.tell(events.OperatorDrained("n2", "ann", "fan"))
    assert not _notices(story.tell(events.OperatorDrained("n2", "ann", "fan")), "n2")


def test_a_node_that_takes_ranks_is_kept_out_by_nothing() -> None:
    story = Story()
    assert why_ineligible(story.core.state, story.core.state.nodes["n0"]) == ""
