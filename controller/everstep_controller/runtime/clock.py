"""Controller clock: the controller's own timeline, which a wall clock that is set does not move.

While a machine is up it is a fixed offset to the boot clock, kept in the journal: a controller that
is started again goes on with it, however the wall clock was set meanwhile. The wall clock is asked
at the first start after a boot, and while no job runs, which a correction would cost time.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_common.clock import boot_ns


@dataclass(frozen=True, slots=True)
class TimelineAnchor:
    """Offset of the controller's timeline to the boot clock of one boot of its machine."""

    boot_id: str
    offset_ns: int

    def encode(self) -> bytes:
        """Return it as the journal keeps it."""
        return json.dumps([self.boot_id, self.offset_ns]).encode()

    @classmethod
    def decode(cls, kept: bytes) -> "TimelineAnchor":
        """Return what the journal has kept."""
        boot_id, offset_ns = json.loads(kept)
        return cls(str(boot_id), int(offset_ns))


@dataclass(slots=True)
class ControllerClock:
    """Nanoseconds of the timeline; they never go back."""

    # Nothing may be earlier than the newest event in the journal.
    floor_ns: int = 0
    # Of this boot; None: the wall clock says where the timeline goes on.
    offset_ns: int | None = None
    wall_ns: Callable[[], int] = time.time_ns
    boot_ns: Callable[[], int] = boot_ns
    _offset_ns: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        booted_ns = self.boot_ns()
        began_ns = self.wall_ns() if self.offset_ns is None else self.offset_ns + booted_ns
        self._offset_ns = max(began_ns, self.floor_ns) - booted_ns

    def now_ns(self) -> int:
        """Return the time."""
        return self._offset_ns + self.boot_ns()

    def anchor(self, boot_id: str) -> TimelineAnchor:
        """Return what a later start in this boot goes on from."""
        return TimelineAnchor(boot_id, self._offset_ns)
