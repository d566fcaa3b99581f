"""Maintenance windows of one node that follow each other, and what a window leaves behind."""

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import MAINTENANCE, NodeState
from everstep_controller.core.model.windows import WindowState
from unit.core.planned.test_maintenance import WindowStory
from unit.core.test_decisions import S


def test_a_window_that_is_cancelled_ahead_takes_nothing_from_the_one_that_has_begun() -> None:
    story = WindowStory().begin()
    now, later = story.planned("n2", in_s=0), story.planned("n2", in_s=86_400)
    assert now.state is WindowState.BEGUN
    done = story.tell(events.MaintenanceCancelled(later.id, "bob"))
    assert "NodeReleased" not in [a.reason for a in done if isinstance(a, actions.Announce)]
    assert story.owners("n2") == [MAINTENANCE]
    assert story.state("n2") is NodeState.MAINTENANCE


def test_a_window_that_drains_and_is_cancelled_leaves_the_claim_of_the_one_that_has_begun() -> None:
    story = WindowStory().begin()
    story.planned("n2", in_s=0, for_s=600)
    following = story.planned("n2", in_s=900)
    story.run_until(story.now_ns + 400 * S)
    assert following.state is WindowState.DRAINING
    story.tell(events.MaintenanceCancelled(following.id, "bob"))
    assert story.owners("n2") == [MAINTENANCE]
    assert not story.core.state.nodes["n2"].draining


def test_of_two_windows_that_drain_a_node_one_is_cancelled_and_the_other_goes_on_draining() -> None:
    story = WindowStory().begin()
    first, second = story.planned("n1", in_s=3600, for_s=90), story.planned("n1", in_s=3700)
    story.run_until(second.span.begin_ns - second.lead_ns)
    assert (first.state, second.state) == (WindowState.DRAINING, WindowState.DRAINING)
    story.tell(events.MaintenanceCancelled(first.id, "bob"))
    node = story.core.state.nodes["n1"]
    assert node.draining
    assert second.id in node.isolation.claims[0].reason
    assert story.is_planned()


def test_a_node_that_is_good_again_takes_no_ranks_while_its_next_window_drains_it() -> None:
    story = WindowStory().begin()
    first = story.planned("n2", in_s=0, for_s=600)
    second = story.planned("n2", in_s=900)
    story.checked("n2", story.run_until(first.span.end_ns))
    assert (first.state, second.state) == (WindowState.OVER, WindowState.DRAINING)
    node = story.core.state.nodes["n2"]
    assert (node.state, node.draining, node.usable) == (NodeState.PROBATION, True, False)
    assert story.core.state.index.draining == ["n2"]
    story.run_until(second.span.begin_ns)
    assert story.state("n2") is NodeState.MAINTENANCE
    story.checked("n2", story.run_until(second.span.end_ns))
    assert (story.owners("n2"), story.core.state.index.draining) == ([], [])


@pytest.mark.parametrize("first_due", [0, 1])
def test_two_windows_that_touch_are_one_whichever_timer_comes_first(first_due: int) -> None:
    story = WindowStory().begin()
    first = story.planned("n2", in_s=100, for_s=600)
    begin_ns = first.span.end_ns
    story.tell(events.MaintenanceOrdered(
        nodes=("n2",), begin_ns=begin_ns, end_ns=begin_ns + 600 * S, operator="bob"
    ))  # fmt: skip
    second = story.core.state.windows["m-2"]
    story.run_until(begin_ns - S)
    story.tell(events.NodeDisconnected("n2"), 0.1)
    pair = [f"maintenance/{first.id}", f"maintenance/{second.id}"]
    story.tell(events.TimerDue(pair[first_due]), (begin_ns - story.now_ns) / S)
    story.tell(events.TimerDue(pair[1 - first_due]), 0)
    assert (first.state, second.state) == (WindowState.OVER, WindowState.BEGUN)
    assert story.state("n2") is NodeState.MAINTENANCE
    assert story.owners("n2") == [MAINTENANCE]
    assert second.id in story.core.state.nodes["n2"].reason


def test_a_window_that_passed_while_the_controller_was_away_stops_no_job_afterwards() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - window.lead_ns)
    assert story.core.state.nodes["n1"].draining
    story.tell(events.TimerDue(f"maintenance/{window.id}"), after_s=5000)
    assert window.state is WindowState.OVER
    assert story.state_of_job() is JobState.RUNNING
    assert story.core.state.nodes["n1"].usable
    assert not story.is_planned()


def test_a_silence_before_a_window_does_not_date_back_a_fault_after_it() -> None:
    story = WindowStory().begin()
    window = story.planned("n2", in_s=100)
    story.run_until(window.span.begin_ns - S)
    story.tell(events.PeerReported("n0", "n2", silent=True), 0)
    story.run_until(window.span.begin_ns)
    assert story.core.state.nodes["n2"].liveness.silent_since_ns == 0


def test_the_wait_for_the_end_of_one_window_does_not_lengthen_the_lead_of_the_next() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1", for_s=7200)
    story.run_until(window.span.begin_ns - story.core.state.settings.maintenance_stop_lead_ns)
    planned = story.job.planned
    assert planned is not None
    story.recoverable(planned.after_step or 0)
    story.stop_all()
    story.run_until(window.span.begin_ns)
    story.checked("n1", story.run_until(window.span.end_ns))
    story.choose(planned.after_step)
    last = planned.after_step or 0
    story.train(last + 1, last + 2, last + 3, saved=last + 2)
    assert story.incidents[-1].over_ns
    assert story.planned("n1").lead_ns == story.core.state.settings.maintenance_drain_lead_ns
