"""Timeline of the controller in the journal: its clock's anchor, and when it was last alive."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.journal.port import JournalReader, JournalWriter
from everstep_controller.runtime.clock import (
    ControllerClock,
    LastAlive,
    TimelineAnchor,
    Witness,
    resumed_clock,
)
from everstep_controller.runtime.stalls import Absence

# Facts in the journal.
_ANCHOR, _ALIVE = "timeline anchor", "alive"


@dataclass(frozen=True, slots=True)
class ResumedTimeline:
    """The clock of this controller, and the boot of its machine that it is anchored to."""

    clock: ControllerClock
    boot_id: str

    def time_away(self, history: JournalReader) -> Absence | None:
        """Return the time since a controller with this journal was alive; None before the first.

        It is what its newest event says, or what it wrote down for this every few seconds.
        """
        now_ns, last_ns = self.clock.now_ns(), history.last()[1]
        began_ns = max(last_ns, min(alive_ns(history), now_ns))
        return Absence(began_ns, now_ns) if last_ns else None

    def written(self, witnesses: Mapping[str, Witness]) -> Callable[[JournalWriter], None]:
        """Return what writes it down: the anchor, and that this controller is alive."""
        now_ns = self.clock.now_ns()
        anchor = self.clock.anchor(self.boot_id, witnesses)

        def keep(store: JournalWriter) -> None:
            store.set_fact(_ANCHOR, anchor.encode())
            store.set_fact(_ALIVE, str(now_ns).encode())

        return keep


def resume_timeline(
    history: JournalReader,
    state: State,
    boot_id: str,
    wall_ns: Callable[[], int],
    boot_ns: Callable[[], int],
    followed_offset_ns: int | None = None,
) -> ResumedTimeline:
    """Return the timeline, which goes on with that of the journal while a job runs.

    A standby that has followed it knows its offset to the boot clock of its own machine.
    """
    kept = history.fact(_ANCHOR)
    anchor = TimelineAnchor.decode(kept) if kept is not None else TimelineAnchor("", 0)
    if followed_offset_ns is not None:
        doubt = anchor.witnesses, anchor.doubtful
        floor_ns = history.last()[1] + 1
        clock = ControllerClock(floor_ns, followed_offset_ns, wall_ns, boot_ns, *doubt)
        return ResumedTimeline(clock, boot_id)
    last = LastAlive(
        anchor=anchor if kept is not None else None,
        event_ns=history.last()[1],
        alive_ns=alive_ns(history),
        job_runs=any(job.state is not JobState.ENDED for job in state.jobs.values()),
    )
    return ResumedTimeline(resumed_clock(last, boot_id, wall_ns, boot_ns), boot_id)


def alive_ns(history: JournalReader) -> int:
    """Return when a controller with this journal has said last that it is alive; 0 before that."""
    return int(history.fact(_ALIVE) or 0)
