"""What the core and people are told when the knowledge of a job's snapshots has changed."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from everstep_common.lessons import Lesson
from everstep_controller.core.events import BreakpointReached, CadenceChosen, Event, LayoutLearned
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.snapshot_costs import Cadence
from everstep_controller.core.model.state import State
from everstep_controller.job_vault import JobVault
from everstep_controller.vault_messages import Directive

# A row of progress stands for a second: what none has told after two, none will tell soon.
_UNTOLD_S = 2.0


class VaultPort(Protocol):
    """How the service reaches nodes, core, people and time."""

    def direct(self, node: str, directive: Directive) -> bool:
        """Send a directive; return whether the node is connected."""
        ...

    def teach(self, node: str, job: str, lesson: Lesson) -> bool:
        """Tell a node what ranks of a job load; return whether it is connected."""
        ...

    def post(self, event: Event) -> None:
        """Journal an event and hand it to the core."""
        ...

    def tell(self, subject: str, reason: str, message: str) -> None:
        """Tell people."""
        ...

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after a while."""
        ...

    def now_ns(self) -> int:
        """Return the time on the controller's timeline."""
        ...


class Before(NamedTuple):
    """What was known before the last look."""

    recoverable_step: int | None
    cadence: Cadence


class VaultNews:
    """Tells what is new, each thing once."""

    def __init__(self, state: Callable[[], State], port: VaultPort) -> None:
        self._state = state
        self._port = port

    def tell(self, vault: JobVault, record: JobRecord, before: Before) -> None:
        """Tell what a look at the job's copies has brought."""
        if vault.recoverable.step != before.recoverable_step or not vault.learned:
            self._tell_layouts(vault)
            self._tell_differing(vault)
        if vault.cadence is not before.cadence:
            self._port.post(CadenceChosen(vault.job, vault.cadence))
            self._port.tell(vault.job, "SnapshotCadence", f"{vault.job}: {vault.cadence.reason}")
        self._tell_of_storage(vault, record)
        self._tell_what_is_recoverable(vault, record)

    def _tell_what_is_recoverable(self, vault: JobVault, record: JobRecord) -> None:
        """Have the core know it soon: the next row of progress says it, where one comes."""
        untold = vault.untold(record)
        if untold is not None and vault.waits_for(untold.step):
            self._port.post(untold)
        elif untold is not None and not vault.telling:
            vault.telling = True
            self._port.later(_UNTOLD_S, lambda: self._tell_late(vault))

    def _tell_late(self, vault: JobVault) -> None:
        vault.telling = False
        record = self._state().jobs.get(vault.job)
        untold = None if record is None else vault.untold(record)
        if untold is not None:
            self._port.post(untold)

    def _tell_layouts(self, vault: JobVault) -> None:
        layouts = vault.unlearned()
        if layouts and vault.layouts_told != (vault.generation, layouts):
            vault.layouts_told = (vault.generation, layouts)
            self._port.post(LayoutLearned(vault.job, vault.generation, layouts=layouts))

    def _tell_differing(self, vault: JobVault) -> None:
        """Say it once a generation: the loss of a node could cost a rank what only it had."""
        step = vault.recoverable.step
        if step is None or vault.differing_told == vault.generation:
            return
        ranks = vault.catalogue.differing(vault.generation, step)
        if ranks is not None:
            vault.differing_told = vault.generation
            self._port.tell(vault.job, "SnapshotsDiffer", _differing(vault.job, step, *ranks))

    def _tell_of_storage(self, vault: JobVault, record: JobRecord) -> None:
        failures = vault.persisting.failures
        last = failures[max(failures)] if failures else ""
        if last and last != vault.told:
            self._port.tell(vault.job, "NotStored", f"step {max(failures)[1]}: {last}")
        vault.told = last
        if not record.closing or record.breakpoint_over:
            return
        sight = vault.sight(record, self._state(), self._port.now_ns())
        if sentence := vault.persisting.over(sight):
            missed = vault.persisting.missed(sight)
            self._port.post(BreakpointReached(vault.job, record.generation, sentence, missed))


def _differing(job: str, step: int, one: int, other: int) -> str:
    return (
        f"{job}: ranks {one} and {other} saved different bytes of step {step} under the same "
        "names. Each gets its own back while a copy of it is left, and any of them after that or "
        "in another number of ranks: put the rank in the name of what is a rank's own"
    )
