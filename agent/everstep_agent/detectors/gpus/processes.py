"""Orphaned GPU memory: device memory held by processes that are gone, or by no process at all."""

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu
from everstep_agent.detectors.gpus.limits import DEFAULTS, GpuLimits
from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import SuggestedAction
from everstep_common.judging.judgement import Judgement

CONDITIONS = (
    Condition(
        name="GpuMemoryUnowned",
        component="gpu/PCI",
        meaning="device memory belongs to a process that does not exist any more; or "
        f"{DEFAULTS.unowned_memory_bytes >> 30} GiB or more are in use without any process, in six "
        "polls (a minute)",
        source="ours; the next job runs out of memory on such a GPU",
        clears_when="what is in use has an owner, or nothing is in use",
        raise_after=6,
    ),
)

_UNOWNED = GpuFault(
    "GpuMemoryUnowned",
    "device memory without an owner",
    "processes of the GPU",
    action=SuggestedAction.RESET_DEVICE,
)


def judge_owners(reading: GpusReading, limits: GpuLimits) -> list[Judgement]:
    """Judge one complete look at the GPUs that answer."""
    return [_judge_owner(gpu, reading.dead_pids, limits) for gpu in reading.gpus if not gpu.error]


def _judge_owner(gpu: GpuReading, dead: tuple[int, ...] | None, limits: GpuLimits) -> Judgement:
    if dead is None or gpu.processes is None or gpu.mig_enabled:
        return judge_gpu(gpu, _UNOWNED, None, "the GPU's processes cannot be seen from here")
    gone = [process for process in gpu.processes if process.pid in dead]
    if gone:
        pids = ", ".join(str(process.pid) for process in gone)
        return judge_gpu(gpu, _UNOWNED, True, f"processes that do not exist: {pids}")
    used, owners = gpu.memory_used_bytes or 0, len(gpu.processes) + (gpu.graphics_processes or 0)
    evidence = f"{used >> 20} MiB in use by {owners} processes"
    return judge_gpu(gpu, _UNOWNED, not owners and used >= limits.unowned_memory_bytes, evidence)
