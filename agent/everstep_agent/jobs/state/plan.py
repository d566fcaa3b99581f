"""Plan of a generation, as one node has it: who runs where, and what is restored. Pure."""

from dataclasses import dataclass

from everstep_agent.vault.snapshots.restore_plan import PlannedSource, RestorePlan, StoredState
from everstep_common.trainer_messages import DataRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A generation as it is to run here; generation 0 stands for none."""

    job: str = ""
    generation: int = 0
    # Id of the job; ``job`` is its name.
    job_id: str = ""
    node_rank: int = 0
    node_count: int = 0
    first_rank: int = 0
    processes: int = 0
    world_size: int = 0
    master_address: str = ""
    master_port: int = 0
    restore: bool = False
    restore_step: int = 0
    sources: tuple[PlannedSource, ...] = ()
    stored: StoredState | None = None
    # Data that the job leaves out.
    skipped: tuple[DataRange, ...] = ()
    transfer_key: bytes = b""
    # Numbers after this generation's own under which the agent may restart the job in place.
    own_restarts: int = 0
    # Whether warm standbys must not be used, because their code may be old.
    renew: bool = False

    @property
    def ranks(self) -> range:
        """Return the ranks of this node."""
        return range(self.first_rank, self.first_rank + self.processes)

    @property
    def restored_generation(self) -> int:
        """Return the generation that made the state to restore; 0 when none is restored."""
        if not self.restore:
            return 0
        if self.sources:
            return self.sources[0].generation
        return self.stored.generation if self.stored else 0

    @property
    def restore_plan(self) -> RestorePlan:
        """Return what the ranks of this node are to get back."""
        return RestorePlan(
            generation=self.generation,
            ranks=self.ranks,
            restores=self.restore,
            sources=self.sources,
            stored=self.stored,
        )
