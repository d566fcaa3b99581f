"""The loop that looks at the node: each probe in its rhythm, its judgements to the findings."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from everstep_agent.detectors.agent import judge_kernel_log, judge_probe
from everstep_agent.detectors.gpu import GpusReading, judge_driver_hang, judge_gpus
from everstep_agent.detectors.host import judge_disks, judge_memory
from everstep_agent.detectors.judgement import Judgement, Look
from everstep_agent.detectors.kernel import (
    KernelLine,
    judge_gpu_faults_over,
    judge_kernel,
    xid_event,
)
from everstep_agent.detectors.links import LinkDetector
from everstep_agent.findings import Findings
from everstep_agent.inventory import NodeView
from everstep_agent.probes.host import HostProbe, read_disks
from everstep_agent.probes.kernel_log import KernelLog, Position
from everstep_agent.probes.network import nvidia_gpus_on_bus, read_links
from everstep_agent.probes.nvml import DriverHangError, NvmlProbe
from everstep_agent.probes.worker import ProbeWorker

T = TypeVar("T")

HOST_INTERVAL_S = 1.0
LINK_INTERVAL_S = 1.0
GPU_INTERVAL_S = 1.0
# statvfs of every disk; a disk does not fill up in seconds.
DISK_INTERVAL_S = 10.0


@dataclass(slots=True)
class Probes:
    """What the watch reads with."""

    kernel_log: KernelLog
    nvml: NvmlProbe
    host: HostProbe
    links: LinkDetector
    sysfs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """Rhythm and deadlines in seconds, and how many GPUs there must be (0: any)."""

    kernel_log_interval_s: float
    deadline_s: float
    gpu_deadline_s: float
    gpus_expected: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class _Poll:
    name: str
    interval_s: float
    look: Callable[[], Awaitable[Sequence[Judgement]]]
    # After the findings are told: what an agent that died before would have to judge again.
    told: Callable[[], None] = lambda: None
    # A check looks out of turn; the thread behind it does one thing at a time.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Watch:
    """Polls every probe. One that fails or hangs is a finding; the others go on."""

    def __init__(
        self, probes: Probes, settings: WatchSettings, view: NodeView, findings: Findings
    ) -> None:
        self._probes = probes
        self._settings = settings
        self._view = view
        self._findings = findings
        self._workers = {
            name: ProbeWorker(name) for name in ("kernel_log", "host", "disks", "network", "nvml")
        }
        self._polls = (
            _Poll(
                "kernel_log",
                settings.kernel_log_interval_s,
                self._look_at_kernel_log,
                self._keep_kernel_position,
            ),
            _Poll("host", HOST_INTERVAL_S, self._look_at_host),
            _Poll("disks", DISK_INTERVAL_S, self._look_at_disks),
            _Poll("network", LINK_INTERVAL_S, self._look_at_links),
            _Poll("nvml", GPU_INTERVAL_S, self._look_at_gpus),
        )
        self._kernel_position = probes.kernel_log.position
        self.xids: Counter[int] = Counter()
        self.on_kernel_position: Callable[[Position], None] = lambda _: None
        self.on_kernel_lines: Callable[[Sequence[KernelLine]], None] = lambda _: None
        self.on_gpus_changed: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Look in every probe's rhythm until cancelled."""
        async with asyncio.TaskGroup() as group:
            for poll in self._polls:
                group.create_task(self._repeat(poll), name=f"probe-{poll.name}")

    async def look(self) -> Sequence[Look]:
        """Look at everything once, out of turn."""
        return await asyncio.gather(*(self._once(poll) for poll in self._polls))

    async def _repeat(self, poll: _Poll) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._once(poll)
            due = max(due + poll.interval_s, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _once(self, poll: _Poll) -> Look:
        judgements: Sequence[Judgement] = ()
        failure = hang = denied = ""
        async with poll.turn:
            try:
                judgements = await poll.look()
            except TimeoutError as error:
                hang = str(error) or "no answer within its deadline"
            except PermissionError as error:
                denied = str(error)
            except (OSError, ValueError) as error:
                failure = str(error) or type(error).__name__
            self._findings.report([*judgements, *judge_probe(poll.name, failure or denied, hang)])
            poll.told()
        return Look(poll.name, tuple(judgements), hang or failure, denied)

    # --- one look each ---------------------------------------------------------------------------

    async def _look_at_kernel_log(self) -> Sequence[Judgement]:
        log = self._probes.kernel_log
        try:
            batch = await self._call("kernel_log", log.drain)
        except OSError as error:
            self._view.kernel_log = str(error)
            raise
        self._view.kernel_log = batch.absent
        self.on_kernel_lines((*batch.earlier, *batch.lines))
        for line in batch.lines:
            if event := xid_event(line.text):
                self.xids[event.code] += 1
        return [*judge_kernel(batch.lines), judge_kernel_log(batch.lost)]

    def _keep_kernel_position(self) -> None:
        position = self._probes.kernel_log.position
        if position != self._kernel_position:
            self._kernel_position = position
            self.on_kernel_position(position)

    async def _look_at_host(self) -> Sequence[Judgement]:
        reading = await self._call("host", self._probes.host.read)
        self._view.host = reading
        return [judge_memory(reading)]

    async def _look_at_disks(self) -> Sequence[Judgement]:
        self._view.disks = await self._call("disks", read_disks)
        return judge_disks(self._view.disks)

    async def _look_at_links(self) -> Sequence[Judgement]:
        sysfs = self._probes.sysfs
        self._view.links = await self._call("network", lambda: read_links(sysfs))
        return self._probes.links.judge(self._view.links)

    async def _look_at_gpus(self) -> Sequence[Judgement]:
        before = self._view.gpus
        try:
            reading = await self._workers["nvml"].call(
                self._read_gpus, self._settings.gpu_deadline_s
            )
        except DriverHangError as error:
            return [judge_driver_hang(str(error))]
        self._view.gpus = reading
        if before is None or {gpu.uuid for gpu in before.gpus} != {
            gpu.uuid for gpu in reading.gpus
        }:
            self.on_gpus_changed()
        judgements = judge_gpus(reading, self._settings.gpus_expected, self._view.gpus_on_bus)
        over = judge_gpu_faults_over(
            self._findings.book.open_findings, self._settings.boot_id, reading
        )
        return [*judgements, *over, judge_driver_hang("")]

    def _read_gpus(self) -> GpusReading:
        self._view.gpus_on_bus = nvidia_gpus_on_bus(self._probes.sysfs)
        return self._probes.nvml.read()

    async def _call(self, worker: str, read: Callable[[], T]) -> T:
        return await self._workers[worker].call(read, self._settings.deadline_s)
