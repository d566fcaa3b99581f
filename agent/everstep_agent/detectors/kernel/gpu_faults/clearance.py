"""Kernel finding clearance: what clears findings that no later kernel message takes back."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading, RecoveryAction
from everstep_agent.detectors.kernel.gpu_faults import sxid
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.gpu_verdict import (
    FIELD_230_RULE,
    DriverAdvice,
    XidOverride,
    by_driver,
)
from everstep_agent.detectors.kernel.gpu_faults.xid import CONDITIONS as XID_CONDITIONS
from everstep_agent.detectors.kernel.gpu_faults.xid import xid_event
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import LINK_AGAIN_RULE, REBOOTED_RULE
from everstep_agent.detectors.kernel.gpu_faults.xid_table import driver_branch
from everstep_agent.detectors.kernel.rules import builtin, repeats
from everstep_common.judging.book import BookEntry
from everstep_common.judging.condition import MINUTE_NS
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

CONDITIONS = (
    *XID_CONDITIONS,
    *sxid.CONDITIONS,
    *builtin.CONDITIONS,
    *repeats.CONDITIONS,
)
# Conditions that neither a later kernel message nor silence clears: a new boot of the node does;
# for a condition of a GPU, a boot in which that GPU answers.
_ENDED_BY_BOOT = frozenset(one.name for one in CONDITIONS if not one.quiet_ns)
# Findings raised because an Xid came back. The driver keeps no history, so its asking for no action
# now does not clear them.
_MEMORY_SAYS = (REBOOTED_RULE, LINK_AGAIN_RULE)
# A finding that is not fatal stays open this long although the driver asks for no action.
_TOLD_NS = 10 * MINUTE_NS


def judge_gpu_faults_over(
    open_findings: Iterable[BookEntry], boot_id: str, gpus: GpusReading | None
) -> list[Judgement]:
    """Return which findings of GPUs a new boot has ended: their GPU must answer in it."""
    return [
        _over(known, boot_id, gpus)
        for known in open_findings
        if known.finding.condition in _ENDED_BY_BOOT and _pci(known)
    ]


def judge_ended_by_boot(open_findings: Iterable[BookEntry], boot_id: str) -> list[Judgement]:
    """Return which of the other findings a new boot has ended."""
    return [
        Healthy(known.finding.key, "the node was rebooted")
        for known in open_findings
        if known.finding.condition in _ENDED_BY_BOOT
        and not _pci(known)
        and _seen(known).boot_id != boot_id
    ]


def _seen(known: BookEntry) -> Moment:
    """Return when it was last reported; the line may have come again after a reboot."""
    return known.last or known.since


def _pci(known: BookEntry) -> str:
    kind, _, name = known.finding.component.partition("/")
    return name if kind == "gpu" else ""


def _over(known: BookEntry, boot_id: str, gpus: GpusReading | None) -> Judgement:
    key = known.finding.key
    if _seen(known).boot_id == boot_id:
        return Unknown(key, "the node was not rebooted since")
    pci = _pci(known)
    found = _gpu(gpus, pci)
    if found is None or found.error:
        return Unknown(key, f"no healthy answer from GPU {pci} in the new boot")
    return Healthy(key, f"the node was rebooted and GPU {pci} answers")


def judge_by_driver(
    open_findings: Iterable[BookEntry],
    reading: GpusReading,
    tables: FaultTables,
    overrides: Mapping[int, XidOverride],
    now: Moment,
) -> list[Judgement]:
    """Return what a new answer of the driver (field 230) says about the Xids that are open."""
    branch = driver_branch(reading.driver)
    judged = []
    for known in open_findings:
        event = xid_event(known.finding.evidence)
        if event is None or _seen(known).boot_id != now.boot_id or event.code in overrides:
            continue
        row = tables.xids.row(event.code, branch)
        action = field_230(_gpu(reading, event.pci))
        if row is None or not row.is_linked(branch) or action is None:
            continue
        judged += _refined(known, action, now)
    return judged


def field_230(gpu: GpuReading | None) -> RecoveryAction | None:
    """Return what the driver asks for; None where it does not say, or the GPU does not answer."""
    if gpu is None or gpu.error or gpu.recovery_action not in list(RecoveryAction):
        return None
    return RecoveryAction(gpu.recovery_action)


def _refined(known: BookEntry, action: RecoveryAction, now: Moment) -> list[Judgement]:
    finding = known.finding
    if finding.injected:
        # The driver knows nothing of an injected Xid, which is cleared when its injection ends.
        return []
    if finding.condition not in ("XidFatal", "XidDegraded") or finding.rule in _MEMORY_SAYS:
        return []
    if action is RecoveryAction.NONE:
        wait_ns = _TOLD_NS if finding.severity is not Severity.FATAL else 0
        if now.boot_ns - _seen(known).boot_ns < wait_ns:
            return []
        return [Healthy(finding.key, f"GPU {_pci(known)}: the driver asks for no action")]
    verdict = by_driver(DriverAdvice(action, FIELD_230_RULE))
    if finding.rule == FIELD_230_RULE or verdict.severity is not finding.severity:
        return []
    decided = replace(
        finding,
        suggested_action=verdict.action,
        rule=verdict.rule,
        message=f"{finding.message}; {verdict.why}",
    )
    return [Faulty(decided)]


def _gpu(reading: GpusReading | None, pci: str) -> GpuReading | None:
    return next((gpu for gpu in reading.gpus if gpu.pci == pci), None) if reading else None
