"""Joining: what a launcher asks; an event, and kept while it waits for the end of another job."""

from dataclasses import dataclass

from everstep_controller.core.model.facts import Origin
from everstep_controller.core.model.lineage import DataRange, Storage, StoredStep


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJoined:
    """A launcher asks to take part in a job."""

    origin: Origin
    job: str
    uid: int
    token_sha256: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    free_port: int
    running_generation: int = 0
    at_ns: int = 0
    storage: Storage | None = None
    # The step in that folder that a new job continues from.
    latest: StoredStep | None = None
    # Fewest and most steps from one snapshot to the next; 0 leaves it to the controller.
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
    # Newest generation that the folder has seen; one that is not newer is refused there.
    stored_generation: int = 0
    # Its user wants to begin anew.
    fresh: bool = False
    # Data that the generation that it has running leaves out.
    skipped: tuple[DataRange, ...] = ()
    # Which job of the name it is of; 0: it has not been told.
    job_id: int = 0
    # So many nodes hold one copy of the model together.
    replica_nodes: int = 1
    # What it starts, in words that differ where the programs do; "": it does not say.
    program: str = ""
