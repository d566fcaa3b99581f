"""The host: load and memory every second, disks more rarely."""

from collections.abc import Sequence

from everstep_agent.detectors.host import DiskReading, HostReading, judge_disks, judge_memory
from everstep_agent.detectors.judgement import Judgement
from everstep_agent.inventory import NodeView
from everstep_agent.probes.host import HostProbe, read_disks
from everstep_agent.source import Source
from everstep_agent.sources.threaded import threaded

HOST_INTERVAL_S = 1.0
# statvfs of every disk; a disk does not fill up in seconds.
DISK_INTERVAL_S = 10.0


def host_sources(probe: HostProbe, view: NodeView, deadline_s: float) -> tuple[Source, ...]:
    """Return the sources that tell of the host."""

    def judge_host(reading: HostReading) -> Sequence[Judgement]:
        view.host = reading
        return [judge_memory(reading)]

    def judge_all_disks(reading: tuple[DiskReading, ...]) -> Sequence[Judgement]:
        view.disks = reading
        return judge_disks(reading)

    return (
        Source(
            name="host",
            group="host",
            interval_s=HOST_INTERVAL_S,
            look=threaded("host", deadline_s, probe.read, judge_host),
        ),
        Source(
            name="disks",
            group="disk",
            interval_s=DISK_INTERVAL_S,
            look=threaded("disks", deadline_s, read_disks, judge_all_disks),
        ),
    )
