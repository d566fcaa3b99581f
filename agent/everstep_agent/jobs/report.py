"""What the controller is told of a job's copies."""

import asyncio

from everstep_agent.outlet import Outlet
from everstep_agent.vault.job_vault import JobVault
from everstep_proto.generated import fleet_pb2


def vault_report(vault: JobVault) -> fleet_pb2.VaultReport:
    """Return everything verified that is here, and the bad copies since the last report."""
    bad, vault.bad_copies = vault.bad_copies, []
    return fleet_pb2.VaultReport(
        job=vault.job,
        settled_generation=vault.settled,
        bad_copies=bad,
        copies=[
            fleet_pb2.Copy(
                generation=facts.key.generation,
                rank=facts.key.rank,
                step=facts.key.step,
                replica=replica,
                root_hash=facts.root_hash,
                size_bytes=facts.size_bytes,
                shards=[entry.name for entry in facts.entries],
            )
            for facts, replica in vault.holdings.facts()
        ],
    )


class Reporter:
    """Reports a job's copies: once for all that changed in one turn of the event loop."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._due = False
        self._last = fleet_pb2.VaultReport()

    def report(self, vault: JobVault) -> None:
        """Tell all copies now, news or not."""
        self._due = False
        self._last = vault_report(vault)
        self._outlet.vault_report(self._last)

    def soon(self, vault: JobVault) -> None:
        """Tell them after this turn of the event loop, if there is news by then."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._if_due, vault)

    def _if_due(self, vault: JobVault) -> None:
        if not self._due:
            return
        self._due = False
        report = vault_report(vault)
        if report != self._last:
            self._last = report
            self._outlet.vault_report(report)
