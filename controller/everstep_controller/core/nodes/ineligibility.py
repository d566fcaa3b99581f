"""Node ineligibility: why a node takes no ranks and what ends that, as a sentence for people."""

from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    SCHEDULER,
    Claim,
    NodeRecord,
    NodeState,
)
from everstep_controller.core.model.state import State
from everstep_controller.core.model.windows import holding, shown

# So many nodes are named in a sentence.
_NAMED_MAX = 3


def why_ineligible(state: State, node: NodeRecord) -> str:
    """Return it in one sentence; empty for a node that takes ranks."""
    if node.usable:
        failed = failed_check(node)
        return failed and f"{failed}; it takes ranks when it has passed one"
    window = holding(state.windows.values(), node.name)
    if window is not None and node.claim_of(MAINTENANCE) is not None:
        return (
            f"{node.name} takes no ranks until {shown(window.span.end_ns)}: {window.sentence()}; "
            f"to end that sooner: everstep maintenance cancel {window.id}"
        )
    if node.claims:
        claim = node.claims[-1]
        return f"{node.name} takes no ranks ({claim.owner}): {claim.reason}; {_ends(node, claim)}"
    if node.state is NodeState.VALIDATING:
        return f"{node.name} is being checked ({node.reason}): it takes ranks when that has passed"
    what = node.state.value if node.connected else "not connected"
    return f"{node.name} is {what}: {node.reason}; 'everstep why {node.name}' tells more"


def failed_check(node: NodeRecord) -> str:
    """Return why a node is no spare though it may take ranks; empty when it may be one."""
    failed = node.spare_check.failed
    return failed and f"{node.name} is no spare: its check failed: {failed}"


def _ends(node: NodeRecord, claim: Claim) -> str:
    """Return what ends a claim, or whoever it was can tell."""
    if claim.owner == OPERATOR:
        return f"to give it back: everstep release {node.name}"
    if claim.owner == SCHEDULER:
        return "its scheduler keeps it out; it takes ranks when it is freed there"
    if claim.owner == AUTOMATION and node.state is NodeState.REPAIRING:
        return f"when it is repaired: everstep release {node.name}"
    return f"it does when it has passed a check; 'everstep why {node.name}' tells more"


def waiting_launchers(state: State, job: JobRecord) -> list[str]:
    """Return for each launcher that waits, by node, why its node takes no ranks of the job."""
    if job.state is JobState.ENDED:
        return []
    names = sorted(frozenset(job.launchers).difference(job.generation.members))
    return [kept for name in names if (kept := why_ineligible(state, state.nodes[name]))]


def ineligible_launchers(state: State, job: JobRecord) -> str:
    """Return which nodes of a job's launchers take no ranks, as the end of a sentence."""
    known, seats = (state.nodes[name] for name in job.launchers), frozenset(job.generation.members)
    kept = [n.name for n in known if not n.usable or (failed_check(n) and n.name not in seats)]
    if not kept:
        return ""
    more = f" and {len(kept) - _NAMED_MAX} more" if len(kept) > _NAMED_MAX else ""
    take = "takes" if len(kept) == 1 else "take"
    return f"; {', '.join(kept[:_NAMED_MAX])}{more} {take} none now ('everstep nodes' tells why)"
