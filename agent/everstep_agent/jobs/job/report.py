"""Vault report: tells the controller which snapshots and replicas of a job this node holds."""

import asyncio
from collections import Counter
from collections.abc import Callable

from everstep_agent.jobs.job.context import Outlet
from everstep_agent.storage.persist_state import PersistState
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyManifest
from everstep_agent.vault.snapshots.manifest import Layout
from everstep_common.preload import Preload
from everstep_common.reports import PersistFailure, Standbys, VaultCopy, VaultReport
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

# Reports are gathered for longer the more ranks a job has: the controller evaluates a job of 16,384
# ranks or more four times a second, so agents report no more often.
_GATHER_S_PER_RANK = 15e-6
_GATHER_S_MAX = 0.25
# How long the news that a copy was freed waits for other news to go with it: nobody waits for it,
# and the copies of the next step come sooner as a rule.
_FREED_S = 10.0
# How long the copies of a step wait for the rest of the replicas of it that come here: before all
# are here it cannot become recoverable.
_STEP_S = 1.0
# How often it is told that steps are left out, where each of them is: as soon as the controller
# concludes that ranks are out of phase.
_LEFT_OUT_S = 0.5


def vault_report(
    vault: JobVault,
    persisted: PersistState,
    standbys: Standbys | None = None,
    preload: Preload | None = None,
) -> fleet_pb2.VaultReport:
    """Return everything verified that is here, and the bad copies since the last report."""
    bad, vault.bad_copies = vault.bad_copies, []
    on_disk = [
        _copy(manifest, vault.layouts.layout_of(manifest), on_disk=True)
        for manifest in persisted.on_disk.values()
    ]
    report = VaultReport(
        job=vault.job,
        copies=(*_copies_in_memory(vault), *on_disk),
        settled_generation=vault.settled,
        bad_copies=tuple(bad),
        stored=tuple(persisted.stored),
        persist_failures=tuple(
            PersistFailure(key.generation, key.step, reason)
            for key, reason in persisted.failures.items()
        ),
        standbys=standbys,
        preload=preload,
        replicas_short=vault.replicas_short,
        storage_id=persisted.storage_id,
        turnover=vault.turnover(),
        passed=vault.passed_steps(),
    )
    return to_wire(report, fleet_pb2.VaultReport)


def _copies_in_memory(vault: JobVault) -> list[VaultCopy]:
    return [
        _copy(manifest, vault.layouts.layout_of(manifest), replica=replica)
        for manifest, replica in vault.holdings.manifests()
    ]


def _copy(
    manifest: CopyManifest, layout: Layout, *, replica: bool = False, on_disk: bool = False
) -> VaultCopy:
    return VaultCopy(
        generation=manifest.key.generation,
        rank=manifest.key.rank,
        step=manifest.key.step,
        replica=replica,
        root_hash=manifest.root_hash,
        size_bytes=manifest.size_bytes,
        layout=layout.whole,
        on_disk=on_disk,
        needed_layout=layout.needed,
    )


class Reporter:
    """Reporter of a job's copies: gathers news for a moment and sends it in one report."""

    def __init__(
        self, outlet: Outlet, gather_s: float, held: Callable[[], fleet_pb2.VaultReport]
    ) -> None:
        self._outlet = outlet
        self._gather_s = gather_s
        # Makes a report. News of bad copies is only in the first one made, so it has to be sent.
        self._held = held
        # The number of ranks of the whole job.
        self.ranks = 0
        self._last = fleet_pb2.VaultReport()
        self._gathering: asyncio.TimerHandle | None = None
        # News waits for other news to go with it, until then.
        self._waiting: asyncio.TimerHandle | None = None
        self._closed = False
        # When steps that are left out were told last.
        self._left_out_s = float("-inf")

    def report(self) -> None:
        """Tell all copies now, news or not."""
        self._tell(self._held())

    def report_soon(self) -> None:
        """Tell them in a moment, if there is news by then."""
        if self._gathering is None and not self._closed:
            loop = asyncio.get_running_loop()
            delay_s = max(self._gather_s, min(self.ranks * _GATHER_S_PER_RANK, _GATHER_S_MAX))
            self._gathering = loop.call_later(delay_s, self._if_news)

    def close(self) -> None:
        """Tell nothing any more unless it is asked for now."""
        self._closed = True
        self._cancel()

    def _cancel(self) -> None:
        for timer in (self._gathering, self._waiting):
            if timer is not None:
                timer.cancel()
        self._gathering = self._waiting = None

    def _if_news(self) -> None:
        self._gathering = None
        report = self._held()
        if _news_of(report) == _news_of(self._last):
            return
        delay_s = _bearable_s(self._last, report)
        if report.passed and list(report.passed) != list(self._last.passed):
            now_s = asyncio.get_running_loop().time()
            delay_s = min(delay_s, max(0.0, self._left_out_s + _LEFT_OUT_S - now_s))
        if delay_s:
            self._tell_within(delay_s)
        else:
            self._tell(report)

    def _tell_within(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        at_s = loop.time() + delay_s
        if self._waiting is not None:
            at_s = min(at_s, self._waiting.when())
            self._waiting.cancel()
        self._waiting = loop.call_at(at_s, self.report)

    def _tell(self, report: fleet_pb2.VaultReport) -> None:
        self._cancel()
        self._last = report
        if report.passed:
            self._left_out_s = asyncio.get_running_loop().time()
        self._outlet.vault_report(report)


def _bearable_s(before: fleet_pb2.VaultReport, report: fleet_pb2.VaultReport) -> float:
    """Return for how long a report may wait for other news to go with it; 0: somebody needs it."""
    if report.bad_copies or not report.copies or _all_but_copies(before) != _all_but_copies(report):
        return 0.0
    told = {copy.SerializeToString() for copy in before.copies}
    new = [copy for copy in report.copies if copy.SerializeToString() not in told]
    if not new:
        return _FREED_S
    replicas, usual = _replicas_of_steps(report), _replicas_of_steps(before)
    most = max(usual.values(), default=0)
    incomplete = all(
        not copy.on_disk and replicas[(copy.generation, copy.step)] < most for copy in new
    )
    return _STEP_S if incomplete else 0.0


def _news_of(report: fleet_pb2.VaultReport) -> fleet_pb2.VaultReport:
    """Return all of a report but what is measured, which goes with other news and is none."""
    news = fleet_pb2.VaultReport()
    news.CopyFrom(report)
    news.ClearField("turnover")
    return news


def _all_but_copies(report: fleet_pb2.VaultReport) -> fleet_pb2.VaultReport:
    rest = _news_of(report)
    del rest.copies[:]
    del rest.bad_copies[:]
    del rest.passed[:]
    return rest


def _replicas_of_steps(report: fleet_pb2.VaultReport) -> Counter[tuple[int, int]]:
    """Return how many replicas of each step are here, by generation and step."""
    return Counter((copy.generation, copy.step) for copy in report.copies if copy.replica)
