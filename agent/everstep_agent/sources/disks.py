"""Disk sources: all local disks together, and each network or user-space file system by itself."""

from collections.abc import Callable, Collection, Sequence

from everstep_agent.detectors.host.disks import DiskDetector, StorageReading, judge_gone
from everstep_agent.detectors.host.mounts import judge_mounts
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.network_mounts import NetworkMounts
from everstep_agent.probes.storage import StorageProbe
from everstep_agent.sources.host import HostSettings
from everstep_agent.sources.source import Source
from everstep_agent.sources.threaded import threaded
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

# How often to ask every disk for its free space: a disk does not fill up in seconds.
DISK_INTERVAL_S = 10.0
# Each look asks a server: 12,500 nodes with three mounts each are 1,250 questions a second.
MOUNT_INTERVAL_S = 30.0


def disk_sources(
    settings: HostSettings,
    view: NodeView,
    open_keys: Callable[[], Collection[FindingKey]] = tuple,
    mounts: NetworkMounts | None = None,
) -> tuple[Source, ...]:
    """Return the sources that tell of the disks; ``open_keys``: what may have to end."""
    storage = StorageProbe(settings.proc, settings.sysfs, settings.fstab)
    remote = mounts or NetworkMounts(settings.proc, settings.limits.mount_deadline_s)
    detector, required = DiskDetector(settings.limits), settings.limits.mounts

    def judge_disks(reading: StorageReading) -> Sequence[Judgement]:
        view.disks = reading.disks
        gone = judge_gone(open_keys(), reading.mounts, required)
        return [*detector.judge(reading), *gone]

    async def look_at_mounts() -> Sequence[Judgement]:
        view.mounts = await remote.read()
        left_out = f"{remote.left_out} of them are not asked" if remote.left_out else ""
        view.blind["network file systems"] = left_out
        return judge_mounts(view.mounts)

    return (
        Source(
            name="disks",
            group="disk",
            interval_s=DISK_INTERVAL_S,
            look=threaded("disks", settings.deadline_s, storage.read, judge_disks),
        ),
        Source(name="mounts", group="disk", interval_s=MOUNT_INTERVAL_S, look=look_at_mounts),
    )
