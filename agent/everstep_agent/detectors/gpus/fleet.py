"""GPU consistency: versions, limits and modes that should be the same on all GPUs of a node."""

from collections import Counter
from collections.abc import Callable, Sequence

from everstep_agent.detectors.gpus.judging import GpuFault, judge, judge_gpu, shown
from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Judgement

DRIVER = "driver/nvidia"

CONDITIONS = (
    Condition(
        name="GpuVersionsDiffer",
        component=DRIVER,
        meaning="GPUs of one model in this node have different firmware (VBIOS or InfoROM)",
        source="Imbue and Meta check this: one GPU of eight that behaves otherwise slows a job",
        clears_when="they are the same",
        raise_after=3,
    ),
    Condition(
        name="GpuPowerLimitsDiffer",
        component=DRIVER,
        meaning="GPUs of one model in this node have different power limits",
        source="ours: the slowest GPU sets the speed of all",
        clears_when="they are the same",
        raise_after=3,
    ),
    Condition(
        name="GpuPowerUnreadable",
        component="gpu/PCI",
        meaning="the driver cannot read a GPU's power, but can read that of another of the same "
        "model, in six polls (a minute)",
        source="DCGM: DCGM_FR_POWER_UNREADABLE",
        clears_when="its power is readable in three polls",
        raise_after=6,
        clear_after=3,
    ),
    Condition(
        name="GpuPersistenceOff",
        component="gpu/PCI",
        meaning="persistence mode is off: the driver forgets the GPU when nobody uses it, and the "
        "next program waits for seconds",
        source="gpud, Azure's health checks",
        clears_when="persistence mode is on",
        raise_after=6,
    ),
)

_VERSIONS = GpuFault(
    "GpuVersionsDiffer", "the GPUs' firmware differs", "versions of this node", Severity.INFO
)
_POWER = GpuFault(
    "GpuPowerLimitsDiffer", "the GPUs' power limits differ", "limits of this node", Severity.INFO
)
_UNREADABLE = GpuFault("GpuPowerUnreadable", "its power cannot be read", "power of the peers")
_PERSISTENCE = GpuFault(
    "GpuPersistenceOff", "persistence mode is off", "persistence mode", Severity.INFO
)


def judge_fleet(gpus: Sequence[GpuReading]) -> list[Judgement]:
    """Judge one complete look at the GPUs that answer."""
    if not gpus:
        return []
    return [
        _judge_same(gpus, _VERSIONS, lambda gpu: f"VBIOS {gpu.vbios}, InfoROM {gpu.inforom}"),
        _judge_same(gpus, _POWER, lambda gpu: f"limit {shown(gpu.power_limit_w, ' W')}"),
        *(_judge_persistence(gpu) for gpu in gpus),
        *(_judge_power(gpu, gpus) for gpu in gpus),
    ]


def _judge_same(
    gpus: Sequence[GpuReading], fault: GpuFault, told: Callable[[GpuReading], str]
) -> Judgement:
    """Judge whether the GPUs of each model tell the same."""
    odd: list[str] = []
    for model in sorted({gpu.name for gpu in gpus}):
        values = [(gpu, told(gpu)) for gpu in gpus if gpu.name == model]
        usual = Counter(value for _, value in values).most_common(1)[0][0]
        odd += [
            f"GPU {gpu.pci} {value} (usual: {usual})" for gpu, value in values if value != usual
        ]
    return judge(DRIVER, fault, bool(odd), "; ".join(odd) or f"{len(gpus)} GPUs agree")


def _judge_power(gpu: GpuReading, gpus: Sequence[GpuReading]) -> Judgement:
    if gpu.power_w is not None:
        return judge_gpu(gpu, _UNREADABLE, False, "it can be read")
    peers = [peer for peer in gpus if peer.name == gpu.name and peer.power_w is not None]
    if not peers:
        return judge_gpu(gpu, _UNREADABLE, None, "no GPU of this model tells its power")
    return judge_gpu(gpu, _UNREADABLE, True, f"{len(peers)} others of this model tell theirs")


def _judge_persistence(gpu: GpuReading) -> Judgement:
    off = None if gpu.persistence is None else not gpu.persistence
    return judge_gpu(gpu, _PERSISTENCE, off, f"persistence mode: {shown(gpu.persistence)}")
