"""The kernel log: every line once, its faults to the findings, its position remembered."""

from collections import Counter
from collections.abc import Callable, Sequence

from everstep_agent.detectors.agent import judge_kernel_log
from everstep_agent.detectors.judgement import Judgement
from everstep_agent.detectors.kernel import KernelLine, judge_kernel, xid_event
from everstep_agent.inventory import NodeView
from everstep_agent.probes.kernel_log import KernelLog, Position
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.source import Source


class KernelLogSource:
    """Reads the log, and tells what it read to whoever shows or remembers it."""

    def __init__(self, log: KernelLog, view: NodeView, deadline_s: float) -> None:
        self._log = log
        self._view = view
        self._deadline_s = deadline_s
        self._worker = ProbeWorker("kernel_log")
        self._position = log.position
        self.xids: Counter[int] = Counter()
        self.on_position: Callable[[Position], None] = lambda _: None
        self.on_lines: Callable[[Sequence[KernelLine]], None] = lambda _: None
        # Which events are over; the book of findings knows.
        self.quiet: Callable[[], Sequence[Judgement]] = lambda: ()

    def source(self, interval_s: float) -> Source:
        """Return it for the watch."""
        return Source(
            name="kernel_log",
            group="kernel",
            interval_s=interval_s,
            look=self._look,
            told=self._keep_position,
        )

    async def _look(self) -> Sequence[Judgement]:
        try:
            batch = await self._worker.call(self._log.drain, self._deadline_s)
        except OSError as error:
            self._view.kernel_log = str(error)
            raise
        self._view.kernel_log = batch.absent
        self.on_lines((*batch.earlier, *batch.lines))
        for line in batch.lines:
            if event := xid_event(line.text):
                self.xids[event.code] += 1
        return [*self.quiet(), *judge_kernel(batch.lines), *judge_kernel_log(batch.lost)]

    def _keep_position(self) -> None:
        if self._log.position != self._position:
            self._position = self._log.position
            self.on_position(self._position)
