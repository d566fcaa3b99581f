"""Simulated clocks: those of the machines, and the timeline that the controller goes on with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from everstep_common.stamp import Stamp
from everstep_controller.core import events
from everstep_controller.runtime.clock import (
    ControllerClock,
    LastAlive,
    TimelineAnchor,
    Witness,
    resumed_clock,
)
from everstep_sim.timeline import VirtualTime


@dataclass(slots=True)
class MachineClock:
    """Clocks of a machine: they begin with its boot, and its wall clock is set now and then."""

    name: str
    boot: int = 1
    booted_ns: int = 0
    # Wall clock minus true time.
    ahead_ns: int = 0

    @property
    def boot_id(self) -> str:
        """Return the id of its boot."""
        return f"{self.name}-boot-{self.boot}"

    def reboot(self, now_ns: int) -> None:
        """Have booted just now."""
        self.boot, self.booted_ns = self.boot + 1, now_ns

    def stamp(self, now_ns: int) -> Stamp:
        """Return what its clocks say."""
        return Stamp(self.boot_id, now_ns - self.booted_ns, now_ns + self.ahead_ns)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the journal keeps of the timeline, besides so many events."""

    events: int
    anchor: bytes
    alive_ns: int


@dataclass(slots=True)
class ControllerTimeline:
    """Timeline of the controller, by the real clock, through starts, reboots and old journals."""

    time: VirtualTime
    machine: MachineClock = field(default_factory=lambda: MachineClock("controller"))
    _kept: list[_Kept] = field(default_factory=list)
    _clock: ControllerClock | None = None

    @property
    def now_ns(self) -> int:
        """Return the time that the controller takes it for."""
        return self.time.now_ns if self._clock is None else self._clock.now_ns()

    @property
    def ahead_ns(self) -> int:
        """Return by how much the timeline is ahead of the true time."""
        return self.now_ns - self.time.now_ns

    @property
    def doubtful(self) -> bool:
        """Whether nobody has told yet how long the controller's machine was down."""
        return self._clock is not None and self._clock.doubtful

    def start(self, journaled: int, last_ns: int, *, job_runs: bool) -> None:
        """Go on where a journal of so many events, the last one at this time, ends."""
        self._kept = [one for one in self._kept if one.events <= journaled]
        kept = self._kept[-1] if self._kept else None
        anchor = None if kept is None else TimelineAnchor.decode(kept.anchor)
        alive_ns = 0 if kept is None else kept.alive_ns
        last = LastAlive(anchor, last_ns, alive_ns, job_runs)
        self._clock = resumed_clock(
            last,
            self.machine.boot_id,
            lambda: self.time.now_ns + self.machine.ahead_ns,
            lambda: self.time.now_ns - self.machine.booted_ns,
        )

    def keep(self, journaled: int, nodes: Mapping[str, Stamp]) -> None:
        """Write down how far the controller has come, and what clocks of its nodes say."""
        if self._clock is None:
            return
        now_ns = self.now_ns
        seen = {name: Witness(one.boot_id, now_ns - one.boot_ns) for name, one in nodes.items()}
        anchor = self._clock.anchor(self.machine.boot_id, seen)
        self._kept.append(_Kept(journaled, anchor.encode(), now_ns))

    def hear(self, node: str, stamp: Stamp) -> int:
        """Take what a node's clocks say in its Hello; return by how much it has gone forward."""
        return 0 if self._clock is None else self._clock.hear(node, stamp)

    def map_times(self, event: events.Event) -> events.Event:
        """Return an event with its times, which are true, on the timeline."""
        ahead_ns = self.ahead_ns
        if ahead_ns and isinstance(event, events.Reported):
            return replace(event, at_ns=event.at_ns + ahead_ns)
        if ahead_ns and isinstance(event, events.JobProgressed):
            return replace(event, end_ns=tuple(at_ns + ahead_ns for at_ns in event.end_ns))
        return event
