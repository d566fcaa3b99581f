"""Events of job progress: rows of completed steps, merged from the reports of all nodes."""

from dataclasses import dataclass

from everstep_controller.core.model.node import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """Consecutive steps that all ranks completed: one row for about a second of steps."""

    job: str
    generation: int
    first_step: int
    # End of each step on the controller's timeline, and how long it stood still for its snapshot.
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    # Newest step that is recoverable without any one node, when the row was made.
    recoverable_step: int | None = None
    snapshots_skipped: int = 0
    origins: tuple[Origin, ...] = ()
