"""Transfer refusal detector: other nodes that refuse this node's transfers, or that it refuses.

Only what this agent began is judged: who connects to it has said no name that can be trusted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Mode
from everstep_common.judging.judgement import Healthy, Judgement

REFUSED = "TransfersRefused"
# Refusals are repeated every second while there is anything to send.
_LOOKS = 60

CONDITIONS = (
    Condition(
        name=REFUSED,
        component="peer/NODE",
        meaning="no copy goes to this peer or comes from it: jobs.bulk_tls is not the same on both "
        "nodes, or one of them does not take the other's certificate",
        source="ours: one refusal, which does not pass by itself",
        clears_when="a connection to the peer succeeded, or none was refused for 60 looks",
        mode=Mode.ADVISE,
    ),
)


@dataclass(slots=True)
class _Refusal:
    """The newest word of one node, and how many looks it counts for."""

    sentence: str
    looks: int = _LOOKS


@dataclass(slots=True)
class RefusalWatch:
    """Nodes that refuse this one, or that this one refuses."""

    _nodes: dict[str, _Refusal] = field(default_factory=dict)

    def refused(self, node: str, sentence: str) -> bool:
        """Note a refusal; return whether it is news."""
        known = self._nodes.get(node)
        self._nodes[node] = _Refusal(sentence)
        return known is None or known.sentence != sentence

    def worked(self, node: str) -> None:
        """A connection to the node has succeeded."""
        self._nodes.pop(node, None)

    def judge(self, open_keys: Iterable[FindingKey]) -> list[Judgement]:
        """Look once: judge all nodes that refuse, and those that were found to and do not."""
        found = [
            judged(
                f"peer/{node}",
                REFUSED,
                known.sentence,
                Fault(
                    message=f"no copy of a snapshot can go to {node} or come from it",
                    rule="self-observation of the agent",
                ),
            )
            for node, known in self._nodes.items()
        ]
        over = [
            Healthy(key, "no connection to it was refused")
            for key in open_keys
            if key.condition == REFUSED and key.component.removeprefix("peer/") not in self._nodes
        ]
        for node, known in list(self._nodes.items()):
            known.looks -= 1
            if not known.looks:
                del self._nodes[node]
        return [*found, *over]
