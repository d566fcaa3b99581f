"""Kernel log since boot, for a single look: read by age, so that past events count as over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.probes.kernel.kernel_log import KernelBatch, KernelLog, Position
from everstep_common.judging.book import BookEntry
from everstep_common.judging.condition import Condition
from everstep_common.judging.judgement import Healthy

Conditions = Mapping[str, Condition]


def quiet_times(conditions: Conditions) -> list[int]:
    """Return the times (ns) without another event after which one is over, the longest first."""
    return sorted({one.quiet_ns for one in conditions.values() if one.quiet_ns}, reverse=True)


class KernelLogSinceBoot:
    """Kernel log that hands over lines by age: oldest first, as far as ``oldest_ns``."""

    def __init__(self, log: KernelLog, now_ns: Callable[[], int]) -> None:
        self._log = log
        self._now_ns = now_ns
        self._kept: list[KernelLine] = []
        # Lines younger than this are held back for a later read.
        self.oldest_ns = 0

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return self._log.position

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        batch = self._log.drain()
        lines = [*self._kept, *batch.lines]
        self._kept = [line for line in lines if self._waits(line)]
        return replace(batch, lines=tuple(line for line in lines if not self._waits(line)))

    def descriptor(self) -> int | None:
        """See KernelLog."""
        return self._log.descriptor()

    def has_news(self) -> bool:
        """See KernelLog."""
        return self._log.has_news()

    def _waits(self, line: KernelLine) -> bool:
        # A line of unknown age counts as new.
        age_ns = 0 if line.boot_ns is None else self._now_ns() - line.boot_ns
        return age_ns < self.oldest_ns


def judge_quiet(held: Sequence[BookEntry], quiet_ns: int, conditions: Conditions) -> list[Healthy]:
    """Return which events ended, when all lines up to this age were read."""
    keys = [known.finding.key for known in held]
    return [
        Healthy(key, "not seen again for long")
        for key in keys
        if 0 < conditions[key.condition].quiet_ns <= quiet_ns
        for _ in range(conditions[key.condition].clear_after)
    ]
