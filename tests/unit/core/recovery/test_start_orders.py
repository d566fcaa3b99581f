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
