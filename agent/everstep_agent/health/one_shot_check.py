"""Node check without an agent: the command reads every source itself, again where it is unsure."""

import asyncio
import dataclasses
from collections.abc import Collection, Iterator

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.devices import devices_that_answer
from everstep_agent.health.groups import groups_of, sources_for
from everstep_agent.health.kernel_log_since_boot import (
    KernelLogSinceBoot,
    judge_quiet,
    quiet_times,
)
from everstep_agent.health.report import HealthReport, Known, Unread, report_on
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.memory import no_memory
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.probes.kernel.kernel_file import FileLog
from everstep_agent.probes.kernel.kernel_log import KernelLog
from everstep_agent.sources.source import ProbeResult
from everstep_agent.tables.site_rules import load_site_rules
from everstep_common.clock import stamp_clock
from everstep_common.judging.book import FindingBook
from everstep_common.judging.condition import SECOND_NS
from everstep_common.judging.findings import FindingKey, Severity
from everstep_common.judging.judgement import Faulty
from everstep_proto.generated import fleet_pb2

# Pause between the repeated looks that a debounced condition asks for: longer than a register
# bounces, short enough for ten of them in a scheduler's prolog.
_PAUSE_S = 0.2
# A probe gives up this long before the command does, so that its name is in the answer.
_MARGIN_S = 0.5
# The source that judges what the others have read, and so is read after them.
_LAST = "inventory"


async def check_without_agent(
    config: AgentConfig, groups: Collection[str], deadline_s: float, notes: tuple[str, ...] = ()
) -> HealthReport:
    """Return what the node's own devices say; with the notes."""
    look = OneShotCheck(_hurried(config, deadline_s), groups, deadline_s)
    try:
        return await look.report(notes)
    finally:
        look.close()


class OneShotCheck:
    """One command's look at the node. Its memory ends with the command."""

    def __init__(self, config: AgentConfig, groups: Collection[str], deadline_s: float) -> None:
        self._name = config.node_name
        self._groups = groups
        self._deadline_s = deadline_s
        site = load_site_rules(config.rules_folder)
        self._conditions = site.conditions
        self._book = FindingBook(site.conditions, (), config.signals.modes)
        self._stamp = stamp_clock(config.proc / "sys/kernel/random/boot_id")
        findings = Findings(self._book, _forget_record, _forget, self._stamp)
        self._logs: list[KernelLogSinceBoot] = []
        self._unread_past: tuple[str, ...] = ()
        self._node = NodeWatch(config, findings, no_memory(), self._stamp, self._past, site=site)
        self._watch = self._node.watch
        wanted = sources_for(groups)
        chosen = [one for one in self._watch.sources if not wanted or one.group in wanted]
        self._probes = {one.name: one.group for one in chosen}
        self._looks: dict[str, ProbeResult] = {}
        self._rounds = 0

    def close(self) -> None:
        """End what was started for it."""
        self._node.close()

    def _past(self, log: KernelLog) -> KernelLogSinceBoot:
        if isinstance(log, FileLog):
            # It may be of weeks, and no agent has noted how far it was read.
            self._unread_past = ("the kernel log is a file: what it said before now is not judged",)
        self._logs.append(KernelLogSinceBoot(log, lambda: self._stamp().boot_ns))
        return self._logs[-1]

    async def _past_first(self, until: float) -> None:
        """Read what the kernel said since the boot, and end what is long over."""
        if "kernel" not in self._probes.values():
            return
        for quiet_ns in quiet_times(self._conditions):
            self._logs[-1].oldest_ns = quiet_ns
            if not await self._together({"kernel"}, until):
                return
            self._book.enter_judgements(
                judge_quiet(self._book.open_findings, quiet_ns, self._conditions), self._stamp()
            )
        self._logs[-1].oldest_ns = 0

    async def report(self, notes: tuple[str, ...]) -> HealthReport:
        """Look, and say what was seen."""
        began = asyncio.get_running_loop().time()
        await self._past_first(began + self._deadline_s)
        while await self._round(began + self._deadline_s):
            took_s = (asyncio.get_running_loop().time() - began) / self._rounds
            left_s = began + self._deadline_s - asyncio.get_running_loop().time()
            if left_s < took_s + _PAUSE_S + _MARGIN_S or not self._needs_another():
                break
            await asyncio.sleep(_PAUSE_S)
        known = Known(
            node=self._name,
            asked="probes",
            findings=self._book.open_findings,
            looks=(*self._looks.values(), *self._never_answered(), *self._not_sure()),
            probes=self._probes | {key.component: self._group(key) for key in self._unsure()},
            notes=(*notes, *self._unread_past),
            blind=self._node.view.blind,
            not_judged=tuple(self._not_judged()),
            answered=devices_that_answer(self._node.view),
        )
        return report_on(known, self._groups)

    async def _round(self, until: float) -> bool:
        """Look at every group once; return whether all came in time."""
        # Everything at each look: the values that an agent reads rarely are judged as well.
        self._node.nvml.complete_soon()
        first = set(self._probes.values()) - {_LAST}
        complete = await self._together(first, until)
        if _LAST in self._probes.values():
            complete = await self._together({_LAST}, until) and complete
        self._rounds += 1
        return complete

    async def _together(self, groups: Collection[str], until: float) -> bool:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._watch.probe_now({group})) for group in groups]
        if not tasks:
            return True
        done, late = await asyncio.wait(tasks, timeout=max(0.0, until - loop.time()))
        self._looks |= {look.probe: look for task in done for look in task.result()}
        for task in late:
            task.cancel()
        return not late

    def _needs_another(self) -> bool:
        return any(
            self._conditions[key.condition].raise_after > self._rounds for key in self._unsure()
        )

    def _unsure(self) -> set[FindingKey]:
        """Return what was faulty at the last look and is not raised."""
        said = (said for look in self._looks.values() for said in look.judgements)
        faulty = {one.key for one in said if isinstance(one, Faulty) and _matters(one)}
        return faulty - {known.finding.key for known in self._book.open_findings}

    def _not_sure(self) -> Iterator[ProbeResult]:
        """Yield what could not be looked at as often as its condition asks; not boot graces."""
        for key in self._unsure():
            wanted = self._conditions[key.condition].raise_after
            if wanted > self._rounds:
                seen = f"{key.condition} in {self._rounds} of {wanted} looks, and no time for more"
                yield ProbeResult(key.component, trouble=seen)

    def _not_judged(self) -> Iterator[Unread]:
        """Yield the conditions that a few seconds cannot show, of what was asked for."""
        for condition in self._conditions.values():
            groups = groups_of(FindingKey(condition.component, condition.name), self._probes)
            asked = not self._groups or groups & set(self._groups)
            if asked and condition.window_ns > self._deadline_s * SECOND_NS:
                watched = f"it has to be watched for {condition.window_ns // SECOND_NS} s"
                yield Unread(condition.name, watched)

    def _group(self, key: FindingKey) -> str:
        """Return a group of what was judged, one that was asked for if there is any."""
        groups = groups_of(key, self._probes)
        return next(iter(groups & set(self._groups) or groups))

    def _never_answered(self) -> Iterator[ProbeResult]:
        for name in self._probes:
            if name not in self._looks:
                yield ProbeResult(name, trouble=f"no answer within {self._deadline_s:g} s")


def _matters(said: Faulty) -> bool:
    """Return whether somebody would wait for it: what is only told changes no exit code."""
    return said.finding.severity is not Severity.INFO


def _hurried(config: AgentConfig, deadline_s: float) -> AgentConfig:
    """Return the configuration with no deadline of a probe beyond that of the command."""
    most = max(deadline_s - _MARGIN_S, deadline_s / 2)
    return dataclasses.replace(
        config,
        probe_deadline_s=min(config.probe_deadline_s, most),
        gpu_deadline_s=min(config.gpu_deadline_s, most),
        gpu_first_deadline_s=min(config.gpu_first_deadline_s, most),
    )


def _forget_record(_record: fleet_pb2.Record) -> None:
    """Tell no controller."""


def _forget(_findings: str) -> None:
    """Leave nothing to the next command."""
