"""Device release: whether the memory of GPUs is free again when the processes that had it are gone.

The driver frees a process's memory before its end can be seen, as a rule. Where it does not, ranks
that come next run out of memory on a GPU that nobody uses.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from everstep_agent.detectors.gpus.judging import GpuFault, judge
from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import FindingKey, Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement

LEFT = "GpuMemoryLeft"
_LISTED_MAX = 8

CONDITIONS = (
    Condition(
        name=LEFT,
        component="gpu/PCI",
        meaning="device memory of a generation of a job was still in use so long after its last "
        "process was gone (jobs.device_release_timeout_s); the job takes another node, where there "
        "is one",
        source="ours: NVML lists a process that is gone, or 1 GiB more than before the ranks "
        "started is in use without any process",
        clears_when="the memory is free, or has another owner",
        mode=Mode.ADVISE,
    ),
)

_LEFT = GpuFault(
    LEFT,
    "memory of ranks that are gone is still in use",
    "after the end of a generation",
    action=SuggestedAction.RESET_DEVICE,
)


@dataclass(frozen=True, slots=True)
class LeftMemory:
    """Memory of one GPU that processes had which are gone; ``before_bytes``: before they came."""

    component: str
    # Gone, and listed by the driver nevertheless; none: no process is listed at all.
    pids: tuple[int, ...]
    used_bytes: int
    before_bytes: int

    @property
    def evidence(self) -> str:
        """Return what was seen."""
        used = f"{self.used_bytes >> 20} MiB in use"
        if not self.pids:
            return f"{used} without any process, {self.before_bytes >> 20} MiB before its ranks"
        more = " …" if len(self.pids) > _LISTED_MAX else ""
        pids = ", ".join(map(str, self.pids[:_LISTED_MAX]))
        return f"{used}; the driver lists processes that do not exist: {pids}{more}"


def memory_in_use(reading: GpusReading | None) -> Mapping[str, int]:
    """Return how much memory of each GPU is in use, as far as the driver says so."""
    gpus = () if reading is None else reading.gpus
    return {
        gpu.component: gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None
    }


def used_by(reading: GpusReading | None, pids: Collection[int]) -> frozenset[str]:
    """Return the GPUs on which the driver lists one of these processes."""
    gpus = () if reading is None else reading.gpus
    return frozenset(
        gpu.component for gpu in gpus if any(one.pid in pids for one in gpu.processes or ())
    )


def left_memory(
    reading: GpusReading,
    pids: Collection[int],
    before: Mapping[str, int],
    least_bytes: int,
    devices: Collection[str] = (),
) -> tuple[LeftMemory, ...]:
    """Return which GPUs still have memory of processes that are gone; ``pids`` are some of them.

    Only of ``devices``, where any are named. Where the driver does not say who has memory, or how
    much of it is in use, nothing is: that is not known is no reason to wait.
    """
    gone = frozenset(pids).union(reading.dead_pids or ())
    chosen = (gpu for gpu in reading.gpus if not devices or gpu.component in devices)
    found = (_left_on(gpu, gone, before.get(gpu.component), least_bytes) for gpu in chosen)
    return tuple(one for one in found if one is not None)


def _left_on(
    gpu: GpuReading, gone: Collection[int], before: int | None, least_bytes: int
) -> LeftMemory | None:
    # Processes of slices are not listed with the whole GPU.
    if gpu.error or gpu.mig_enabled or gpu.processes is None:
        return None
    used, known = gpu.memory_used_bytes or 0, before or 0
    listed = tuple(one.pid for one in gpu.processes if one.pid in gone)
    if listed:
        return LeftMemory(gpu.component, listed, used, known)
    owned = bool(gpu.processes or gpu.graphics_processes)
    if owned or before is None or used - before < least_bytes:
        return None
    return LeftMemory(gpu.component, (), used, known)


def is_still_left(one: LeftMemory, reading: GpusReading, least_bytes: int) -> bool | None:
    """Return whether memory that was left is still in use; None where nobody says."""
    gpu = next((gpu for gpu in reading.gpus if gpu.component == one.component), None)
    if gpu is None or gpu.error or gpu.processes is None:
        return None
    return _left_on(gpu, one.pids, one.before_bytes, least_bytes) is not None


def judge_left(
    left: Mapping[str, tuple[LeftMemory, bool | None]], open_keys: Collection[FindingKey]
) -> Iterator[Judgement]:
    """Judge the GPUs with memory that was left, and whether it still is; others are well."""
    for component, (one, still) in left.items():
        yield judge(component, _LEFT, still, one.evidence)
    for key in open_keys:
        if key.condition == LEFT and key.component not in left:
            yield judge(key.component, _LEFT, False, "its memory is free, or has another owner")
