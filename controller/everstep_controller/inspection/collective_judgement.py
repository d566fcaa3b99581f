"""Collective judgement: which rank comes last to collectives, by what ranks told of the newest."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_controller.inspection.judge_process import judge_file
from everstep_controller.slow.collective_arrival.arrivals import NodeClock
from everstep_controller.slow.collective_arrival.collective_finding import CollectiveFinding
from everstep_controller.slow.collective_arrival.late_ranks import find_late
from everstep_controller.slow.live import LivePlaces


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Where the ranks run, node by node, and what is known of the clocks there."""

    places: LivePlaces
    # Wall clock minus the controller's timeline, and how far that may be off; -1: not known.
    offsets_ns: tuple[int, ...]
    uncertainties_ns: tuple[int, ...]

    @property
    def clocks(self) -> dict[str, NodeClock]:
        """Return the clocks that are known."""
        told = zip(self.places.nodes, self.offsets_ns, self.uncertainties_ns, strict=True)
        return {node: NodeClock(offset, off) for node, offset, off in told if off >= 0}


async def judge_collectives(file: Path, looked_at: LookedAt) -> CollectiveFinding:
    """Return what a look tells that was written to a file. Raises JudgeError."""
    return await judge_file("collectives", file, _read_finding, json_text(looked_at))


def _read_finding(printed: bytes) -> CollectiveFinding:
    return from_json(CollectiveFinding, json.loads(printed))


def find(told: Iterable[NodeTold], besides: str) -> str:
    """Return what a look tells, as JSON: what the judge prints."""
    looked_at = from_json(LookedAt, json.loads(besides))
    return json_text(find_late(read_all(told).reports, looked_at.places, looked_at.clocks))
