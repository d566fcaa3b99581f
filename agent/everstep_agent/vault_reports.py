"""Vault report queue: what is reported next of each lineage's copies, whole or as a change."""

from everstep_agent.message_fitting import fitting_report
from everstep_proto.generated import fleet_pb2

# How many bad copies a report lists: broken memory must not make it grow without end.
_BAD_COPIES_MAX = 32

# The copies that a report listed, by their serialized bytes.
_Told = dict[bytes, fleet_pb2.VaultCopy]


class VaultReports:
    """The newest report of each lineage, which goes out whole or as a change of the one before.

    A copy comes and goes once and is listed a dozen times meanwhile, so changes are a third of the
    controller's work. They refer to what this very stream carried before, in order: a stream that
    is lost takes them along, and the next one begins with whole lists.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, fleet_pb2.VaultReport] = {}
        self._told: dict[str, _Told] = {}
        # The preload that was sent last for each: large, and rarely another one.
        self._preloads: dict[str, fleet_pb2.Preload] = {}

    def put(self, report: fleet_pb2.VaultReport) -> None:
        """Send a report soon; what an unsent one said of bad copies is not lost."""
        report = fitting_report(report)
        lineage = _lineage_of(report)
        before = self._waiting.get(lineage)
        if before is not None and before.bad_copies:
            newest, report = report, fleet_pb2.VaultReport()
            report.CopyFrom(newest)
            bad = [*before.bad_copies, *newest.bad_copies][-_BAD_COPIES_MAX:]
            del report.bad_copies[:]
            report.bad_copies.extend(bad)
        self._waiting[lineage] = report

    def begin(self) -> None:
        """A stream begins, on which nothing was told."""
        self._told.clear()
        self._preloads.clear()

    def pop_next(self) -> fleet_pb2.VaultReport | None:
        """Return what is to be sent next; it counts as told."""
        if not self._waiting:
            return None
        report = self._without_known_preload(self._waiting.pop(next(iter(self._waiting))))
        lineage = _lineage_of(report)
        before = self._told.pop(lineage, None)
        now = {copy.SerializeToString(): copy for copy in report.copies}
        if now:
            self._told[lineage] = now
        return report if before is None else _change(report, before, now)

    def _without_known_preload(self, report: fleet_pb2.VaultReport) -> fleet_pb2.VaultReport:
        lineage = _lineage_of(report)
        if not report.HasField("preload"):
            self._preloads.pop(lineage, None)  # the next job of the lineage may have the same
            return report
        known, self._preloads[lineage] = self._preloads.get(lineage), report.preload
        if known != report.preload:
            return report
        without = fleet_pb2.VaultReport()
        without.CopyFrom(report)
        without.ClearField("preload")
        return without


def _lineage_of(report: fleet_pb2.VaultReport) -> str:
    return report.lineage_id or report.job


def _change(report: fleet_pb2.VaultReport, before: _Told, now: _Told) -> fleet_pb2.VaultReport:
    change = fleet_pb2.VaultReport()
    change.CopyFrom(report)
    del change.copies[:]
    change.copies.extend(copy for told, copy in now.items() if told not in before)
    change.change = True
    change.gone.extend(copy for told, copy in before.items() if told not in now)
    return change
