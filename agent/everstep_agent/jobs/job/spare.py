"""Spare duty: what a node prepares for a job while its launcher waits here as a spare."""

import logging
from collections.abc import Callable
from dataclasses import replace

from everstep_agent.jobs.job.peers import LauncherLink
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.vault.directives import spare_request_of
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.restore.restorer import Restorer
from everstep_common.orders import SpareMemory
from everstep_common.preload import Preload, is_sound

logger = logging.getLogger(__name__)


class SpareDuty:
    """The memory that the controller wants ready here, as long as its order counts."""

    def __init__(
        self, record: JobRecord, link: LauncherLink, vault: JobVault, restorer: Restorer
    ) -> None:
        self._record = record
        self._link = link
        self._vault = vault
        self._restorer = restorer
        self._wanted: SpareMemory | None = None

    def order(self, wanted: SpareMemory) -> None:
        """Have memory ready for the place of a member that fails; none where one is held here."""
        if not wanted.ahead:
            self.stop_fetching()
        elif wanted.transfer_key:
            self._record.share_key(wanted.transfer_key)
            self._vault.transfer_key = wanted.transfer_key
        # The order may come before the launcher has reconnected to an agent that was restarted.
        self._wanted = wanted
        self.resume()

    def resume(self) -> None:
        """Begin with what is wanted, if there is a launcher to wait."""
        facts = self._record.facts
        if self._wanted is None or facts.active or facts.ended:
            return
        if self._link.connected:
            self._restorer.prepare_spare(spare_request_of(self._wanted))

    def stop_fetching(self) -> None:
        """The member is there whose copies were fetched: they go when they are not needed.

        What guards another node's copies is kept until the job has a newer step.
        """
        if self._wanted is not None and self._wanted.ahead:
            if not self._wanted.guards:
                self._vault.context.counters.early_discarded += 1
            self._vault.tasks.cancel_ahead(self._vault.fence)
            self._wanted = replace(self._wanted, ahead=())

    def end(self) -> None:
        """The launcher has its place, or has gone."""
        self._wanted = None


class PreloadRelay:
    """Relay of the modules that ranks have loaded, from running launchers to waiting ones."""

    def __init__(
        self, record: JobRecord, link: LauncherLink, on_change: Callable[[], None]
    ) -> None:
        """``on_change`` has what is new reported to the controller."""
        self._record = record
        self._link = link
        self._on_change = on_change
        self._here: Preload | None = None
        self._elsewhere: Preload | None = None

    def record_local(self, preload: Preload) -> None:
        """The launcher says what its ranks have loaded; it may say anything."""
        if not is_sound(preload):
            logger.warning("job %s: ignored: a preload that is none", self._record.facts.job)
            return
        self._here = preload
        self._on_change()

    def reported(self) -> Preload | None:
        """Return the report for the controller; one node of a job is enough."""
        plan = self._record.plan
        tells = plan.generation and plan.node_rank == 0 and not self._record.facts.ended
        return self._here if tells else None

    def receive(self, preload: Preload) -> None:
        """The controller says what ranks on other nodes have loaded."""
        if is_sound(preload):
            self._elsewhere = preload
            self.send_to_launcher()

    def send_to_launcher(self) -> None:
        """Tell a launcher that waits."""
        if self._link.request is None or self._record.facts.active:
            return
        if self._elsewhere is not None:
            self._link.send(self._elsewhere)

    def forget(self) -> None:
        """Another job goes on from this one's state, and may run another script."""
        self._here = self._elsewhere = None
