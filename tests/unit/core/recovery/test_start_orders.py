"""The orders with which a generation starts."""

from everstep_controller.core import actions
from unit.core.test_decisions import Story


def test_spares_are_told_to_wait_in_the_order_in_which_they_came() -> None:
    # A replay in another process has to decide the same, and compares what comes in order.
    spares = [f"n{index}" for index in range(9, 1, -1)]
    story = Story(nodes=10)
    for node in ("n0", "n1", *spares):
        story.join(node)
    done = story.choose(None)
    held = [action.node for action in done if isinstance(action, actions.HoldLauncher)]
    assert held == spares


def test_a_job_that_goes_on_from_storage_at_its_first_start_names_no_plan() -> None:
    story = Story(nodes=2)
    story.join("n0")
    story.join("n1")
    told = {a.reason for a in story.choose(43) if isinstance(a, actions.StartGeneration)}
    assert all("generation 1 continues after step 43" in reason for reason in told), told
    assert told


def test_a_plan_is_told_in_words() -> None:
    story = Story(nodes=2)
    story.run()
    story.exit_rank("n1")
    story.stop_all()
    told = {a.reason for a in story.choose(43) if isinstance(a, actions.StartGeneration)}
    assert told
    assert all("generation 2 (in place) continues after step 43" in reason for reason in told), told
