"""Short words for catalogues, branches and jobs in the tests of the vault's decisions."""

from collections.abc import Iterable

from everstep_common.reports import Storage, StoredStep
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Lineage,
    Members,
)
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, Tier

S = 1_000_000_000
NODES = ("a", "b", "c")
BRANCH = (BranchPoint(1, None, len(NODES)),)
REACHABLE = {node: f"{node}:1" for node in NODES}


def copy(node: str, rank: int, step: int, *, generation: int = 1, disk: bool = False) -> Copy:
    """Return a copy of a rank's step: rank 0 is at home on a, rank 1 on b and so on."""
    tier = Tier.DISK if disk else Tier.MEMORY
    layout = f"part-{rank}"
    replica = NODES[rank % len(NODES)] != node
    return Copy(node, generation, rank, step, replica, f"{rank}{step:03}", 8, layout, tier)


def ring(
    steps: Iterable[int],
    *,
    files: Iterable[int] = (),
    generation: int = 1,
    into: Catalogue | None = None,
) -> Catalogue:
    """Return a catalogue in which each rank's steps are at home and on the next node."""
    catalogue = into or Catalogue()
    held, written = list(steps), list(files)
    for index, node in enumerate(NODES):
        ranks = (index, (index - 1) % len(NODES))
        copies = [copy(node, rank, step, generation=generation) for rank in ranks for step in held]
        copies += [copy(node, index, n, generation=generation, disk=True) for n in written]
        catalogue.replace(node, copies, generation)
        catalogue.record_stored(node, ())
    return catalogue


def stored(step: int, generation: int = 1) -> StoredStep:
    """Return a whole step in storage."""
    return StoredStep(generation, step, len(NODES), f"{generation:02}{step:04}", 24)


def job(*, storage: Storage | None = None, state: JobState = JobState.RUNNING) -> JobRecord:
    """Return a job of three nodes in its first generation."""
    spec = JobSpec(uid=0, token_sha256="", nodes_min=1, nodes_max=3, reform=True, storage=storage)
    return JobRecord(
        "train-1",
        "train",
        spec,
        ledger=Ledger(0),
        state=state,
        generation=Generation(1, Members(NODES)),
        lineage=Lineage(list(BRANCH)),
    )
