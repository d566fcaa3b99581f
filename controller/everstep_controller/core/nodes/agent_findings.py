"""Findings about agents that are silent: away, hung, or not heard by their peers."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.model.node import NodeRecord

AGENT_GONE = Condition(
    name="AgentGone",
    component="agent",
    meaning="the node's agent is away, and the node is not lost: its kernel answers, its job makes "
    "steps, or nobody is there who could tell; ranks that step go on, the node takes no new ones, "
    "and no job counts on its vault",
    source="its stream, and peers that ask it by UDP and TCP; away for 15 s (agent_return_s)",
    clears_when="its agent connects",
    mode=Mode.ADVISE,
)
PROBES_BLOCKED = Condition(
    name="ProbesBlocked",
    component="agent/liveness",
    meaning="the node's agent answers on its stream, and peers do not hear it over UDP: its silence"
    " would be noticed late",
    source="probes of the peers that watch it, for 15 s (agent_return_s), and pings on its stream",
    clears_when="one of these peers hears it",
    mode=Mode.ADVISE,
)
AGENT_HUNG = Condition(
    name="AgentHung",
    component="agent",
    meaning="the node's agent is there (its stream is open, or its port accepts connects) and does "
    "not answer, and the node is not lost; ranks that step go on, the node takes no new ones, and "
    "no job counts on its vault",
    source="pings on its stream, and peers that ask it by UDP and TCP; for 15 s (agent_return_s)",
    clears_when="its agent answers, or connects anew",
    mode=Mode.ADVISE,
)


def silent_agent(condition: Condition, doubt: str) -> Finding:
    """Return the finding that an agent is away, or hangs, and why its node is doubtful."""
    word = "hangs" if condition is AGENT_HUNG else "is away"
    return Finding(
        component=condition.component,
        condition=condition.name,
        mode=condition.mode,
        severity=Severity.DEGRADED,
        message=f"its agent {word}: {doubt}",
        suggested_action=SuggestedAction.WATCH,
        rule="see 'journalctl -u everstep-agent' on the node; cleared when its agent answers",
    )


def blocked_probes(node: NodeRecord) -> Finding:
    """Return the finding that an agent answers on its stream and peers do not hear it."""
    return Finding(
        component=PROBES_BLOCKED.component,
        condition=PROBES_BLOCKED.name,
        mode=PROBES_BLOCKED.mode,
        severity=Severity.INFO,
        message=f"peers do not hear {node.name} over UDP, and its agent answers on its stream",
        suggested_action=SuggestedAction.WATCH,
        rule="let UDP through to liveness_address; cleared when a peer hears it",
    )
