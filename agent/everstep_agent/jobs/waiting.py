"""A launcher that waits as a spare: what its node is to have ready, and when that is not needed."""

from collections.abc import Callable

from everstep_agent.jobs.facts import JobFacts
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.restore.restorer import Restorer
from everstep_agent.vault.restore.spare_memory import prepare_spare
from everstep_proto.generated import fleet_pb2


class Waiting:
    """What was ordered last, as long as it counts."""

    def __init__(
        self,
        facts: JobFacts,
        vault: JobVault,
        restorer: Restorer,
        has_launcher: Callable[[], bool],
    ) -> None:
        self._facts = facts
        self._vault = vault
        self._restorer = restorer
        self._has_launcher = has_launcher
        self._wanted: fleet_pb2.SpareMemory | None = None

    def wait(self, wanted: fleet_pb2.SpareMemory) -> None:
        """Have memory ready for the place of a member that fails; none where one is held here."""
        if not wanted.ahead:
            self.heard_again()
        elif wanted.transfer_key:
            self._facts.transfer_key = self._vault.transfer_key = wanted.transfer_key
        # It may be said before the launcher is back at an agent that has started again.
        self._wanted = wanted
        self.go_on()

    def go_on(self) -> None:
        """Begin with what is wanted, if there is a launcher to wait."""
        holds_a_place = self._facts.plan.generation > self._facts.stopped
        if self._wanted is None or holds_a_place or self._facts.ended:
            return
        if self._has_launcher():
            prepare_spare(self._vault, self._restorer, self._wanted)

    def heard_again(self) -> None:
        """The member is there whose copies were fetched: they go when they are not needed."""
        if self._wanted is not None and self._wanted.ahead:
            self._vault.context.counters.early_discarded += 1
            self._vault.tasks.cancel_ahead(self._vault.fence)
            del self._wanted.ahead[:]

    def over(self) -> None:
        """It has its place, or has gone."""
        self._wanted = None
