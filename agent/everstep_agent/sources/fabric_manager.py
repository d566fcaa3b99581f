"""Fabric manager source: its log, followed, for its service stays active while it refuses jobs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.detectors.kernel.rules import fabric_manager
from everstep_agent.detectors.kernel.rules.rule import LineRules
from everstep_agent.probes.kernel.kernel_file import FileLog
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position
from everstep_agent.sources.source import Source, threaded
from everstep_common.judging.judgement import Judgement

_INTERVAL_S = 10.0
_RULES = LineRules(fabric_manager.RULES)


def fabric_manager_source(
    path: Path, position: Position, deadline_s: float, on_position: Callable[[Position], None]
) -> Source:
    """Return the source; ``on_position`` is told how far the log was read and judged."""
    log = FileLog(path, position, _messages)
    told = [log.position]

    def judge(batch: KernelBatch) -> Sequence[Judgement]:
        judged = {one.key: one for line in batch.lines if (one := _RULES.judge(line))}
        return list(judged.values())

    def keep() -> None:
        if log.position != told[0]:
            told[0] = log.position
            on_position(log.position)

    look = threaded("fabric_manager", deadline_s, log.drain, judge)
    return Source(
        name="fabric_manager",
        group="gpu",
        interval_s=_INTERVAL_S,
        look=look,
        told=keep,
        workers=(look.worker,),
    )


def _messages(texts: Sequence[str]) -> Iterator[KernelLine]:
    return (KernelLine(text) for text in texts)
