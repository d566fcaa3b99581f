"""Judge of collective looks: a process of its own tells who comes last, over thousands of ranks.

``python -m everstep_controller.collective_looks.look_judge FILE``; where the ranks run, and the
clocks of their nodes, come on standard input.
"""

import gc
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_controller.hangs.evidence import read_told
from everstep_controller.runtime.judge_process import judge_file, let_controller_first
from everstep_controller.slow.collective_arrival.arrivals import NodeClock
from everstep_controller.slow.collective_arrival.collective_finding import CollectiveFinding
from everstep_controller.slow.collective_arrival.late_ranks import find_late
from everstep_controller.slow.live import LivePlaces


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Where the ranks run, node by node, and what is known of the clocks there."""

    nodes: tuple[str, ...]
    domains: tuple[str, ...]
    ranks_per_node: int
    # Wall clock minus the controller's timeline, and how far that may be off; -1: not known.
    offsets_ns: tuple[int, ...]
    uncertainties_ns: tuple[int, ...]

    @property
    def places(self) -> LivePlaces:
        """Return where the ranks run."""
        return LivePlaces(self.nodes, self.domains, self.ranks_per_node)

    @property
    def clocks(self) -> dict[str, NodeClock]:
        """Return the clocks that are known."""
        told = zip(self.nodes, self.offsets_ns, self.uncertainties_ns, strict=True)
        return {node: NodeClock(offset, off) for node, offset, off in told if off >= 0}


async def judge_look(file: Path, looked_at: LookedAt) -> CollectiveFinding:
    """Return what a look tells that was written to a file. Raises JudgeError."""
    told = json_text(looked_at).encode()
    return await judge_file(__name__, file, _read_finding, told)


def _read_finding(printed: bytes) -> CollectiveFinding:
    return from_json(CollectiveFinding, json.loads(printed))


def find(told: list[NodeTold], looked_at: LookedAt) -> CollectiveFinding:
    """Return what a look tells."""
    return find_late(read_all(told).reports, looked_at.places, looked_at.clocks)


def main() -> int:
    """Print what a look tells."""
    let_controller_first()
    gc.disable()  # nothing is in a circle, and the process ends soon
    looked_at = from_json(LookedAt, json.load(sys.stdin))
    print(json_text(find(list(read_told(Path(sys.argv[1]))), looked_at)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
