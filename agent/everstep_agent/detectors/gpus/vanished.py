"""Vanished metrics detector: a GPU that no longer tells what it told, while its peers do."""

from collections.abc import Sequence

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu
from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode
from everstep_common.judging.judgement import Judgement

# What every poll reads; the others are read too seldom. Power is another condition's.
_METRICS = ("temperature_c", "busy_ratio", "sm_clock_mhz", "memory_used_bytes")
_PEERS_MIN = 2

CONDITIONS = (
    Condition(
        name="GpuMetricsVanished",
        component="gpu/PCI",
        meaning="the GPU answers, but no longer tells its temperature, load, clock or "
        "memory, which it told before and at least two other GPUs of the node tell, in 60 polls",
        source="ours: a GPU that is about to be lost loses its sensors first; what the driver "
        "stops telling of all GPUs is the driver's",
        clears_when="it tells them again in ten polls, or its peers do not either",
        raise_after=60,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
)
_FAULT = GpuFault(
    "GpuMetricsVanished",
    "it no longer tells what it told, and its peers still tell",
    "told before, and by the peers",
)


class VanishedMetrics:
    """Detector that remembers what each GPU has told since the agent started."""

    def __init__(self) -> None:
        self._told: dict[str, frozenset[str]] = {}

    def judge(self, gpus: Sequence[GpuReading]) -> list[Judgement]:
        """Judge one look at the GPUs that answer."""
        now = {gpu.component: _told(gpu) for gpu in gpus}
        judgements = []
        for gpu in gpus:
            told = now[gpu.component]
            # A GPU that is cut into slices tells less, by design.
            before = frozenset() if gpu.mig_enabled else self._told.get(gpu.component, told)
            self._told[gpu.component] = before | told
            judgements.append(self._judge_one(gpu, before - told, now))
        return judgements

    def _judge_one(
        self, gpu: GpuReading, missing: frozenset[str], now: dict[str, frozenset[str]]
    ) -> Judgement:
        others = {name: told for name, told in now.items() if name != gpu.component}
        own = [name for name in _METRICS if name in missing and self._peers_tell(name, others)]
        if missing and not own:
            return judge_gpu(gpu, _FAULT, False, "its peers do not tell it either")
        evidence = f"missing: {', '.join(own)}; {len(others)} peers" if own else "nothing missing"
        return judge_gpu(gpu, _FAULT, bool(own), evidence)

    def _peers_tell(self, metric: str, others: dict[str, frozenset[str]]) -> bool:
        """Return whether enough others tell a metric, and none has stopped to."""
        stopped = any(
            metric in self._told.get(name, frozenset()) and metric not in told
            for name, told in others.items()
        )
        return not stopped and sum(metric in told for told in others.values()) >= _PEERS_MIN


def _told(gpu: GpuReading) -> frozenset[str]:
    return frozenset(name for name in _METRICS if getattr(gpu, name) is not None)
