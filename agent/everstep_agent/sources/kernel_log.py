"""Log sources: every kernel message, judged once, the last boot's, and the logs of daemons."""

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.agent import judge_kernel_log
from everstep_agent.detectors.gpus.presence import GpusReading
from everstep_agent.detectors.kernel import KernelDetector, KernelLine, XidSettings
from everstep_agent.detectors.kernel.detector import Interesting, prefilter_for
from everstep_agent.detectors.kernel.gpu_faults.clearance import (
    field_230,
    judge_by_driver,
    judge_ended_by_boot,
)
from everstep_agent.detectors.kernel.gpu_faults.xid import xid_event
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.gpu_faults.xid_history import XidSighting
from everstep_agent.detectors.kernel.gpu_faults.xid_table import driver_branch
from everstep_agent.detectors.kernel.logs.log_formats import LogFormats
from everstep_agent.detectors.kernel.logs.pstore import PstoreReading, judge_pstore
from everstep_agent.detectors.kernel.rules.builtin import (
    DAEMON_RULES,
    DAEMONS,
    FABRIC_MANAGER_RULES,
    RULES,
)
from everstep_agent.detectors.kernel.rules.component_limit import ComponentLimit, OpenFinding
from everstep_agent.detectors.kernel.rules.rule import LinePrefilter, LineRules
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.kernel.kernel_buffer import BufferLog, may_read
from everstep_agent.probes.kernel.kernel_device import DeviceLog
from everstep_agent.probes.kernel.kernel_file import FileLog, kernel_lines
from everstep_agent.probes.kernel.kernel_log import KernelBatch, KernelLog, Position
from everstep_agent.probes.kernel.pstore import read_pstore
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.source import Source, threaded
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import StampClock, stamp_clock
from everstep_common.judging.book import BookEntry
from everstep_common.judging.condition import SECOND_NS
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment


class Readiness:
    """Watch on a descriptor between looks; during one it stays readable anyway.

    ``descriptor`` may be None for now: then only the interval of the source leads to a look.
    """

    def __init__(self, descriptor: Callable[[], int | None], has_news: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._has_news = has_news
        self._wake: Callable[[], None] | None = None
        self._watched: int | None = None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Listen."""
        self._wake = wake
        self.arm()
        return self._end

    def arm(self, again: bool = False) -> None:
        """Watch from now on; ``again``: there is more to read, whatever the descriptor says."""
        if self._wake is None:
            return
        if again:
            self._wake()
        if self._watched is None and (descriptor := self._descriptor()) is not None:
            asyncio.get_running_loop().add_reader(descriptor, self._readable)
            self._watched = descriptor

    def _readable(self) -> None:
        if self._has_news() and self._wake is not None:
            self._disarm()
            self._wake()

    def _disarm(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    def _end(self) -> None:
        self._disarm()
        self._wake = None


# The same Xid of the same GPU comes in bursts; the driver is asked once for all of them.
_ASK_AGAIN_NS = SECOND_NS


async def _nobody() -> GpusReading | None:
    return None


def _uuids(reading: GpusReading | None) -> Mapping[str, str]:
    return {gpu.pci: gpu.uuid for gpu in reading.gpus if gpu.uuid} if reading else {}


class KernelLogSource:
    """Source of kernel messages, told to whoever shows or remembers them."""

    def __init__(
        self,
        log: KernelLog,
        view: NodeView,
        deadline_s: float,
        settings: XidSettings | None = None,
    ) -> None:
        self._log = log
        self._view = view
        self._deadline_s = deadline_s
        self._settings = settings or XidSettings(load_tables())
        self._detector = KernelDetector(self._settings)
        self._worker = ProbeWorker("kernel_log")
        self._readiness = Readiness(log.descriptor, log.has_news)
        self._position = log.position
        self._more = False
        self._judged_gpus: GpusReading | None = None
        self._asked: dict[tuple[str, int], int] = {}
        self.now: Callable[[], Moment] = stamp_clock()
        self.on_position: Callable[[Position], None] = lambda _: None
        self.on_lines: Callable[[Sequence[KernelLine]], None] = lambda _: None
        self.on_history: Callable[[Sequence[XidSighting]], None] = lambda _: None
        # Return which events are over, and what is open; wired to the book of open findings.
        self.quiet: Callable[[], Sequence[Judgement]] = lambda: ()
        self.open_findings: Callable[[], Sequence[BookEntry]] = lambda: ()
        # Returns what the driver says now, or nothing when it does not answer within milliseconds.
        self.ask_gpus: Callable[[], Awaitable[GpusReading | None]] = _nobody

    def know(self, open_finding: Callable[[FindingKey], Finding | None]) -> None:
        """Judge lines with what is open under a key."""
        self._detector.open_finding = open_finding

    @property
    def xids(self) -> Counter[int]:
        """Return how often each Xid was seen."""
        return self._detector.xids

    def source(self, interval_s: float) -> Source:
        """Return it for the watch."""
        return Source(
            name="kernel_log",
            group="kernel",
            interval_s=interval_s,
            look=self._look,
            listen=self._readiness.listen,
            told=self._told,
            workers=(self._worker,),
        )

    def judge_told(self, lines: Sequence[KernelLine]) -> Sequence[Judgement]:
        """Judge Xids that were told elsewhere (NVML events), without their text."""
        reading = self._view.gpus
        branch = driver_branch(reading.driver) if reading else None
        truth = DriverTruth(branch, uuids=_uuids(reading))
        found = [Interesting(line, xid_event(line.text)) for line in lines]
        readable = self._view.kernel_log == ""
        worth = [one for one in found if not (readable and one.xid and one.xid.needs_text)]
        return self._detector.judge(worth, truth, self.now())

    async def _look(self) -> Sequence[Judgement]:
        batch = await self._drain()
        self._more = batch.more
        self.on_lines((*batch.earlier, *batch.lines))
        found = self._detector.prefilter(batch.lines)
        truth = await self._truth(found)
        now = self.now()
        self._detector.ports.note_places(self._view.places)
        return [
            *self.quiet(),
            *judge_ended_by_boot(self.open_findings(), now.boot_id),
            *self._judge_by_driver(now),
            *self._detector.judge(found, truth, now),
            *judge_kernel_log(batch.lost),
        ]

    async def _drain(self) -> KernelBatch:
        try:
            batch = await self._worker.call(self._log.drain, self._deadline_s)
        except OSError as error:
            self._view.kernel_log = str(error)
            raise
        self._view.kernel_log = batch.absent
        return batch

    async def _truth(self, found: Sequence[Interesting]) -> DriverTruth:
        """Return what the driver says; asked now if Xids came about which it may say something."""
        known = self._view.gpus
        fresh = await self.ask_gpus() if self._is_worth_asking(found) else None
        reading = fresh or known
        branch = driver_branch(reading.driver) if reading else None
        gpus = fresh.gpus if fresh else ()
        said = {gpu.pci: action for gpu in gpus if (action := field_230(gpu)) is not None}
        return DriverTruth(branch, said, _uuids(known))

    def _is_worth_asking(self, found: Sequence[Interesting]) -> bool:
        gpus = self._view.gpus.gpus if self._view.gpus else ()
        speaking = {gpu.pci for gpu in gpus if gpu.recovery_action is not None}
        now_ns = self.now().boot_ns
        worth = False
        for one in found:
            if one.xid is None or one.xid.pci not in speaking:
                continue
            key = (one.xid.pci, one.xid.code)
            worth = worth or now_ns - self._asked.get(key, -_ASK_AGAIN_NS) >= _ASK_AGAIN_NS
            self._asked[key] = now_ns
        return worth

    def _judge_by_driver(self, now: Moment) -> Sequence[Judgement]:
        reading = self._view.gpus
        if reading is None or reading is self._judged_gpus:
            return ()
        self._judged_gpus = reading
        given = self._settings
        return judge_by_driver(self.open_findings(), reading, given.tables, given.overrides, now)

    def _told(self) -> None:
        if self._log.position != self._position:
            self._position = self._log.position
            self.on_position(self._position)
        history = self._settings.history
        if history.changed:
            history.changed = False
            self.on_history(history.remembered())
        self._readiness.arm(again=self._more)


ARCHIVE = Path("/var/lib/systemd/pstore")
# Records appear at a boot and go when somebody removes them.
_INTERVAL_S = 600.0


def pstore_source(
    folders: Sequence[Path],
    view: NodeView,
    stamp: StampClock,
    deadline_s: float,
    environ: Mapping[str, str] = os.environ,
) -> Source:
    """Return the source that tells of crashes."""

    def judge(reading: PstoreReading) -> Sequence[Judgement]:
        view.blind["pstore"] = reading.denied or _not_in_the_pod(folders, environ)
        return [judge_pstore(reading, stamp())]

    look = threaded("pstore", deadline_s, lambda: read_pstore(folders), judge)
    return Source(
        name="pstore",
        group="kernel",
        interval_s=_INTERVAL_S,
        look=look,
        workers=(look.worker,),
    )


def _not_in_the_pod(folders: Sequence[Path], environ: Mapping[str, str]) -> str:
    """Return that nothing is told of crashes in a pod that has none of these folders mounted."""
    if "KUBERNETES_SERVICE_HOST" not in environ or any(map(os.path.ismount, folders)):
        return ""
    return f"this agent is a pod, and {' or '.join(map(str, folders))} is not mounted into it"


_DEVICE = Path("/dev/kmsg")


def kernel_log(path: Path, boot_id: str, position: Position, rules: LineRules = RULES) -> KernelLog:
    """Return the log at ``path``, to be read from a position on.

    Where the device itself may not be opened, as in a container, the system call reads its buffer.
    """
    if path == _DEVICE and not _opens(path) and (may_read() or not path.exists()):
        return BufferLog(boot_id, position)
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return DeviceLog(path, boot_id, position)
    prefilter = prefilter_for(rules)
    return FileLog(path, position, lambda texts: kernel_lines(texts, prefilter))


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


_FOLLOWED_INTERVAL_S = 10.0
# Of 4 MiB each: a user who writes 6 MB/s to a system log for long does not hide what follows.
_DRAINS_MAX = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """Memory beside a followed log: ``on_position`` keeps how far it was judged."""

    on_position: Callable[[Position], None]
    open_finding: OpenFinding = lambda _: None


def fabric_manager_source(path: Path, position: Position, kept: Kept, deadline_s: float) -> Source:
    """Return the source of the fabric manager's log.

    Its service stays active while it refuses what jobs ask of it.
    """
    log = FileLog(path, position, _messages)
    this = _Followed("fabric_manager", "gpu", log, FABRIC_MANAGER_RULES)
    return _followed(this, kept, deadline_s)


def system_log_source(path: Path, position: Position, kept: Kept, deadline_s: float) -> Source:
    """Return the source of what smartd and GPFS write to a system log."""
    log = FileLog(path, position, _daemon_messages)
    return _followed(_Followed("system_log", "host", log, DAEMON_RULES), kept, deadline_s)


@dataclass(frozen=True, slots=True)
class _Followed:
    """A daemon's log and the rules over its lines."""

    name: str
    group: str
    log: FileLog
    rules: LineRules


def _followed(this: _Followed, kept: Kept, deadline_s: float) -> Source:
    log, limit = this.log, ComponentLimit()
    told = [log.position]

    def read() -> Sequence[Judgement]:
        judged: dict[FindingKey, Judgement] = {}
        for _ in range(_DRAINS_MAX):
            batch = log.drain()
            said = (one for line in batch.lines if (one := this.rules.judge(line)))
            judged |= {one.key: one for one in map(limit.bounded, said)}
            if not batch.more:
                break
        return list(judged.values())

    def judge(judged: Sequence[Judgement]) -> Sequence[Judgement]:
        limit.forget_ended(kept.open_finding)
        return judged

    def keep() -> None:
        if log.position != told[0]:
            told[0] = log.position
            kept.on_position(log.position)

    look = threaded(this.name, deadline_s, read, judge)
    return Source(
        name=this.name,
        group=this.group,
        interval_s=_FOLLOWED_INTERVAL_S,
        look=look,
        told=keep,
        workers=(look.worker,),
    )


def _messages(texts: Sequence[str]) -> Iterator[KernelLine]:
    return (KernelLine(text) for text in texts)


_DAEMON_PREFILTER = LinePrefilter(DAEMON_RULES.needles)


def _daemon_messages(texts: Sequence[str]) -> Iterator[KernelLine]:
    for place in _DAEMON_PREFILTER.select(texts):
        line = LogFormats().read(texts[place])
        # GPFS's own log names no program.
        if not line.program or line.program in DAEMONS:
            yield KernelLine(line.text)
