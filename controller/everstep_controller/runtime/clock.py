"""Controller clock: the controller's own timeline, which a wall clock that is set does not move.

While a machine is up it is a fixed offset to the boot clock, kept in the journal: a controller that
is started again goes on with it, however the wall clock was set meanwhile. In another boot, of this
machine or of another one, it goes on from where it was last alive, while a job runs: how long the
machine has been up says nothing about how long the controller was away. The first agent whose clock
says how long that was has it corrected. The wall clock is asked at other starts: at the first one,
and while no job runs, which a correction would cost time.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from everstep_common.clock import boot_ns
from everstep_common.judging.moment import Moment

# So many nodes' clocks are kept: one of them that has not rebooted as well is enough.
WITNESSES_MAX = 16
# Two wall clocks that agree so well are right.
_AGREE_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class Witness:
    """Clock of a node on the timeline: controller time minus boot time, of one boot."""

    boot_id: str
    offset_ns: int


@dataclass(frozen=True, slots=True)
class TimelineAnchor:
    """Offset of the controller's timeline to the boot clock of one boot of its machine."""

    boot_id: str
    offset_ns: int
    # By node: who tells, in the next boot, how long the controller was away.
    witnesses: Mapping[str, Witness] = field(default_factory=dict)
    # Nobody has told that yet in this boot.
    doubtful: bool = False

    def encode(self) -> bytes:
        """Return it as the journal keeps it."""
        seen = {node: [one.boot_id, one.offset_ns] for node, one in self.witnesses.items()}
        return json.dumps([self.boot_id, self.offset_ns, seen, self.doubtful]).encode()

    @classmethod
    def decode(cls, kept: bytes) -> "TimelineAnchor":
        """Return what the journal has kept."""
        boot_id, offset_ns, seen, doubtful = json.loads(kept)
        witnesses = {node: Witness(str(one[0]), int(one[1])) for node, one in seen.items()}
        return cls(str(boot_id), int(offset_ns), witnesses, bool(doubtful))


@dataclass(slots=True)
class ControllerClock:
    """Nanoseconds of the timeline; they never go back."""

    # Nothing may be earlier than the newest event in the journal.
    floor_ns: int = 0
    # Of this boot; None: the wall clock says where the timeline goes on.
    offset_ns: int | None = None
    wall_ns: Callable[[], int] = time.time_ns
    boot_ns: Callable[[], int] = boot_ns
    # Nodes that may tell how long the controller was away; only while that is not known.
    witnesses: Mapping[str, Witness] = field(default_factory=dict)
    doubtful: bool = False
    _offset_ns: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        booted_ns = self.boot_ns()
        began_ns = self.wall_ns() if self.offset_ns is None else self.offset_ns + booted_ns
        self._offset_ns = max(began_ns, self.floor_ns) - booted_ns

    def now_ns(self) -> int:
        """Return the time."""
        return self._offset_ns + self.boot_ns()

    @property
    def offset_to_boot_ns(self) -> int:
        """Return how far the timeline is from the machine's boot clock."""
        return self._offset_ns

    def reach(self, told_ns: int) -> None:
        """Go on from a time that the controller which writes the journal has told just now."""
        self._offset_ns = max(self._offset_ns, told_ns - self.boot_ns())

    def hear(self, node: str, moment: Moment) -> int:
        """Correct the time by what a node's clocks say; return by how much it has gone forward.

        That is never further than the wall clock: a node whose clock is wrong does no more harm.
        """
        if not self.doubtful:
            return 0
        wall_ns, now_ns, known = self.wall_ns(), self.now_ns(), self.witnesses.get(node)
        if known is not None and known.boot_id == moment.boot_id:
            told_ns = known.offset_ns + moment.boot_ns
        else:
            # It was not up all the time. When no other one can have been, wall clocks are believed
            # that agree: they may have been set by the same wrong server.
            self.witnesses = {name: one for name, one in self.witnesses.items() if name != node}
            if self.witnesses or abs(moment.wall_ns - wall_ns) > _AGREE_NS:
                return 0
            told_ns = wall_ns
        # A wall clock that is behind what a node tells is not set yet, or the node tells nonsense.
        self.doubtful = told_ns > wall_ns + _AGREE_NS
        forward_ns = max(0, min(told_ns, wall_ns) - now_ns)
        self._offset_ns += forward_ns
        return forward_ns

    def anchor(self, boot_id: str, witnesses: Mapping[str, Witness]) -> TimelineAnchor:
        """Return what a later start goes on from."""
        seen = self.witnesses if self.doubtful or not witnesses else witnesses
        return TimelineAnchor(boot_id, self._offset_ns, seen, self.doubtful)


@dataclass(frozen=True, slots=True)
class LastAlive:
    """Times of a journal: its newest event, and its controller's last sign of life."""

    anchor: TimelineAnchor | None
    event_ns: int
    alive_ns: int
    # A job has not ended, which a jump of the timeline would cost time.
    job_runs: bool


def resumed_clock(
    last: LastAlive, boot_id: str, wall_ns: Callable[[], int], boot_ns: Callable[[], int] = boot_ns
) -> ControllerClock:
    """Return the clock of a controller that starts in a boot of its machine."""
    floor_ns, anchor = last.event_ns + 1, last.anchor
    if anchor is None or not last.job_runs:
        return ControllerClock(floor_ns, None, wall_ns, boot_ns)
    if anchor.boot_id == boot_id:
        return ControllerClock(
            floor_ns, anchor.offset_ns, wall_ns, boot_ns, anchor.witnesses, anchor.doubtful
        )
    away_since_ns = max(floor_ns, last.alive_ns)
    offset_ns = away_since_ns - boot_ns()
    return ControllerClock(floor_ns, offset_ns, wall_ns, boot_ns, anchor.witnesses, True)
