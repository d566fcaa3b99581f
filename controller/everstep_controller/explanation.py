"""Explanation of a node's or job's state: one sentence that says nothing twice."""

from collections.abc import Iterable

from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import Claim, NodeRecord
from everstep_controller.core.nodes.claims import failed_check
from everstep_controller.core.planned.forecast import describe


def explain(subject: NodeRecord | JobRecord, paused: str, more: Iterable[str] = ()) -> str:
    """Return the sentence; ``paused`` is why automation for it waits, or empty; ``more`` to say."""
    parts = [f"{subject.name} is {subject.state.value}: {subject.reason}"]
    if isinstance(subject, NodeRecord):
        parts += [_claimed(claim, subject.reason) for claim in subject.claims]
        if subject.deferred:
            parts.append(f"should be isolated: {subject.deferred}")
        if failed := failed_check(subject):
            parts.append(failed)
    elif subject.incident is not None and subject.incident.verdict not in ("", subject.reason):
        parts.append(f"the fault was judged: {subject.incident.verdict}")
    if isinstance(subject, JobRecord) and subject.planned is not None:
        parts.append(describe(subject, subject.planned))
    parts.extend(more)
    if paused:
        parts.append(f"automation is paused: {paused}")
    return "; ".join(parts)


def _claimed(claim: Claim, told: str) -> str:
    ranks = "new ranks, and its own leave at a step boundary" if claim.draining else "ranks"
    words = f"takes no {ranks} ({claim.owner})"
    return words if claim.reason == told else f"{words}: {claim.reason}"
