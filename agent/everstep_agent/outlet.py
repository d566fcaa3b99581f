"""Where the parts of the agent put what the controller must hear."""

from typing import Protocol

from everstep_proto.generated import fleet_pb2


class Outlet(Protocol):
    """What a part of the agent may say to the controller. Only to be called on the event loop."""

    def record(self, record: fleet_pb2.Record) -> None:
        """Have this journaled by the controller; sequence and stamp are filled in."""
        ...

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """Tell the copies of one job; the newest report of a job replaces the ones before it."""
        ...
