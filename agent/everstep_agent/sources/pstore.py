"""Crash record source: whether the boot before this one crashed."""

from collections.abc import Sequence
from pathlib import Path

from everstep_agent.detectors.kernel.pstore import PstoreReading, judge_pstore
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.pstore import read_pstore
from everstep_agent.sources.source import Source
from everstep_agent.sources.threaded import threaded
from everstep_common.clock import StampClock
from everstep_common.judging.judgement import Judgement

ARCHIVE = Path("/var/lib/systemd/pstore")
# Records appear at a boot and go when somebody removes them.
_INTERVAL_S = 600.0


def pstore_source(
    folders: Sequence[Path], view: NodeView, stamp: StampClock, deadline_s: float
) -> Source:
    """Return the source that tells of crashes."""

    def judge(reading: PstoreReading) -> Sequence[Judgement]:
        view.blind["pstore"] = reading.denied
        return [judge_pstore(reading, stamp())]

    look = threaded("pstore", deadline_s, lambda: read_pstore(folders), judge)
    return Source(
        name="pstore",
        group="kernel",
        interval_s=_INTERVAL_S,
        look=look,
        workers=(look.worker,),
    )
