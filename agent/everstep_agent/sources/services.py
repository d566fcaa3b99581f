"""Service source: units of the service manager, in a rhythm and at once when one changes."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.detectors.host.service_limits import PEER_MEMORY, USUAL_UNITS, ServiceLimits
from everstep_agent.detectors.host.services import ServiceDetector, ServicesReading, judge_unwatched
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.machine.services import ServicesProbe
from everstep_agent.probes.machine.system_bus import SYSTEM_BUS, SystemBus
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.source import Source
from everstep_common.clock import StampClock
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

SERVICES_INTERVAL_S = 10.0
# A unit that restarts ten times a second must not have ten looks a second.
_WAKES_APART_S = 1.0
_RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesSettings:
    """Settings of the service source: bus, thresholds, and how long an answer may take."""

    sysfs: Path = Path("/sys")
    bus: Path = SYSTEM_BUS
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    deadline_s: float = 5.0
    # Returns the keys of open findings, so that those of units no longer watched can be cleared.
    open_keys: Callable[[], Collection[FindingKey]] = tuple


class ServicesSource:
    """Source of services: asks the service manager, and hears of changes in between."""

    def __init__(
        self, settings: ServicesSettings, view: NodeView, counters: Counters, stamp: StampClock
    ) -> None:
        limits = settings.limits
        self._settings = settings
        self._names = (*USUAL_UNITS, *limits.units)
        self._probe = ServicesProbe(settings.sysfs, self._names, SystemBus(settings.bus))
        self._detector = ServiceDetector(limits, counters)
        self._view = view
        self._stamp = stamp
        self._worker = ProbeWorker("services")
        self._signals: socket.socket | None = None
        self._wake: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again = False

    def source(self) -> Source:
        """Return it for the watch."""
        return Source(
            name="services",
            group="services",
            interval_s=SERVICES_INTERVAL_S,
            look=self._look,
            listen=self._listen,
            workers=(self._worker,),
        )

    async def _look(self) -> Sequence[Judgement]:
        reading, signals = await self._worker.call(self._read, self._settings.deadline_s)
        if signals is not None:
            self._hear(signals)
        self._view.services = reading
        self._view.blind["services"] = reading.absent
        modules = (PEER_MEMORY, *self._settings.limits.modules)
        unwatched = judge_unwatched(self._settings.open_keys(), self._names, modules)
        return [*self._detector.judge(reading, self._stamp()), *unwatched]

    def _read(self) -> tuple[ServicesReading, socket.socket | None]:
        reading = self._probe.read()
        if self._wake is None or self._signals is not None:
            return reading, None
        with contextlib.suppress(OSError):
            return reading, self._probe.signals()
        # Without signals of changes the service manager is only asked in a rhythm.
        return reading, None

    def _listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wake = wake
        return self._stop

    def _stop(self) -> None:
        self._wake = None
        self._hang_up()
        if self._timer is not None:
            self._timer.cancel()

    def _hear(self, signals: socket.socket) -> None:
        self._signals = signals
        asyncio.get_running_loop().add_reader(signals.fileno(), self._heard)

    def _heard(self) -> None:
        """Ask for a look soon; what was said is asked for again then, so nobody takes it apart."""
        assert self._signals is not None
        try:
            said = self._signals.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._hang_up()
        self._again = self._timer is not None
        if self._timer is None:
            self._wake_and_rest()

    def _wake_and_rest(self) -> None:
        self._again = False
        if self._wake is not None:
            self._wake()
            self._timer = asyncio.get_running_loop().call_later(_WAKES_APART_S, self._rested)

    def _rested(self) -> None:
        self._timer = None
        if self._again:
            self._wake_and_rest()

    def _hang_up(self) -> None:
        if self._signals is not None:
            asyncio.get_running_loop().remove_reader(self._signals.fileno())
            self._signals.close()
            self._signals = None


def services_source(
    settings: ServicesSettings, view: NodeView, counters: Counters, stamp: StampClock
) -> Source:
    """Return the source that tells of the services."""
    return ServicesSource(settings, view, counters, stamp).source()
