"""A journal that is old, or gone: what was in it is rebuilt from what the agents know."""

from everstep_controller.core import jobs, orders
from everstep_controller.core.events import RecoveryBegun
from everstep_controller.core.state import CONTROLLER
from everstep_controller.core.turn import Turn


def begun(turn: Turn, event: RecoveryBegun) -> None:
    """Listen to all agents for a while, and act on nothing meanwhile."""
    turn.state.halted = f"rebuilding from what the agents know, ordered by {event.operator}"
    turn.state.recovering = True
    turn.set_timer("recovery", turn.state.settings.recovery_ns)
    turn.announce(CONTROLLER, "RecoveryBegun", turn.state.halted)


def over(turn: Turn, _: str) -> None:
    """Go on from what the agents have told, in a term that is newer than all that they know."""
    state = turn.state
    state.term = max(state.term, state.highest_term_seen) + 1
    state.halted, state.recovering = "", False
    for job in state.jobs.values():
        jobs.adopt_generation(turn, job, state.generations_seen.get(job.name, 0))
    turn.announce(CONTROLLER, "RecoveryOver", f"rebuilt; term {state.term} begins")
    turn.actions.extend(orders.outstanding(state))
