"""Xid detector: turns Xids into findings; a milder one does not replace an open graver one."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from everstep_agent.detectors.gpus.presence import RecoveryAction, recovery_finding
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.gpu_verdict import (
    FIELD_230_RULE,
    OPERATOR_RULE,
    XID_154_RULE,
    DriverAdvice,
    Verdict,
    XidOverride,
    by_driver,
    by_tables,
    decide,
)
from everstep_agent.detectors.kernel.gpu_faults.xid import REBOOTS_WORDS, XidEvent, recovery_action
from everstep_agent.detectors.kernel.gpu_faults.xid_history import (
    BURST_GAP_NS,
    BURSTS,
    EARLIER_BOOTS,
    XidHistory,
)
from everstep_agent.detectors.kernel.rules.line import KernelLine
from everstep_agent.detectors.kernel.rules.rule import EVIDENCE_CHARS, more_severe
from everstep_common.judging.condition import MINUTE_NS
from everstep_common.judging.findings import Finding, FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.judging.moment import Moment

REBOOTED_RULE = f"same Xid after {EARLIER_BOOTS} reboots"
LINK_AGAIN_RULE = "Xid 74 again on the same link"
# NVIDIA: the third ECC or parity error on the same NVLink in a day is a hardware fault.
_LINK_ERRORS = 2
# Xids of faulty programs; only one that comes again in the same place is held against the GPU.
_REPEATING = (13, 31)

# The driver logs Xid 154 within a second of the Xid that it is about.
_ADVICE_NS = MINUTE_NS
_CONDITIONS = {
    Severity.INFO: "XidObserved",
    Severity.DEGRADED: "XidDegraded",
    Severity.FATAL: "XidFatal",
}
_ESCALATED = (SuggestedAction.RESET_DEVICE, SuggestedAction.REBOOT_NODE)


@dataclass(slots=True)
class _Gpu:
    """The newest Xids of one GPU: a burst of them has one cause."""

    codes: Counter[int] = field(default_factory=Counter)
    last: Moment | None = None
    advised: RecoveryAction | None = None
    advised_ns: int = 0


@dataclass(frozen=True, slots=True)
class DriverTruth:
    """Facts from the driver: its branch, field 230 by GPU (read after the Xids), and UUIDs."""

    branch: int | None = None
    actions: Mapping[str, RecoveryAction] = field(default_factory=dict)
    uuids: Mapping[str, str] = field(default_factory=dict)


class XidDetector:
    """Detector of Xids. ``open_finding`` returns the finding that is open under a key."""

    def __init__(
        self, tables: FaultTables, overrides: Mapping[int, XidOverride], history: XidHistory
    ) -> None:
        self._tables = tables
        self._overrides = overrides
        self._history = history
        self._gpus: dict[str, _Gpu] = {}
        self.open_finding: Callable[[FindingKey], Finding | None] = lambda _: None

    def judge(
        self, event: XidEvent, line: KernelLine, truth: DriverTruth, now: Moment
    ) -> list[Judgement]:
        """Judge one Xid, in the order in which they were logged."""
        gpu = self._gpus.setdefault(event.pci, _Gpu())
        if event.code == 154:
            return self._driver_word(event, line, gpu, now)
        if event.code in (162, 163):
            return [_power_smoothing(event, line)]
        _join(gpu, event, now)
        if line.injected:
            # An injected Xid: the driver knows nothing of it, and it must not enter the history.
            verdict = self._verdict(event, gpu, replace(truth, actions={}), now)
        else:
            self._remember(event, truth, now)
            verdict = self._verdict(event, gpu, truth, now)
            verdict = self._escalated(event, verdict, truth.uuids.get(event.pci, ""), now)
        if verdict.severity is None:
            return self._repeats(event, line, now)
        finding = self._finding(event, line, verdict, gpu)
        # A milder Xid that follows a graver one does not replace the graver one's open finding.
        return [Faulty(more_severe(finding, self.open_finding(finding.key)))]

    def _verdict(self, event: XidEvent, gpu: _Gpu, truth: DriverTruth, now: Moment) -> Verdict:
        row = self._tables.xids.row(event.code, truth.branch)
        advice = None
        if row is not None and row.is_linked(truth.branch):
            advice = _driver_advice(event, gpu, truth, now)
        table = by_tables(event.code, event.text, self._tables, truth.branch)
        return decide(table, row, self._overrides.get(event.code), advice)

    def _remember(self, event: XidEvent, truth: DriverTruth, now: Moment) -> None:
        row = self._tables.xids.row(event.code, truth.branch)
        if event.code in _REPEATING or (row is not None and row.severity is not None):
            place, uuid = event.place or _link(event), truth.uuids.get(event.pci, "")
            self._history.note(event.pci, event.code, place, now, uuid)

    def _escalated(self, event: XidEvent, verdict: Verdict, uuid: str, now: Moment) -> Verdict:
        if verdict.action not in _ESCALATED or verdict.rule == OPERATOR_RULE:
            return verdict
        if self._history.earlier_boots(event.pci, event.code, now, uuid) >= EARLIER_BOOTS:
            why = f"{REBOOTS_WORDS} ({verdict.rule} asks for {verdict.action.value})"
            return Verdict(verdict.severity, SuggestedAction.REPAIR_HARDWARE, REBOOTED_RULE, why)
        link = _link(event)
        times = self._history.bursts(event.pci, event.code, link, now) if link else 0
        if times > _LINK_ERRORS:
            why = f"{times} times in a day on {link}"
            return Verdict(verdict.severity, SuggestedAction.REPAIR_HARDWARE, LINK_AGAIN_RULE, why)
        return verdict

    def _repeats(self, event: XidEvent, line: KernelLine, now: Moment) -> list[Judgement]:
        if event.code not in _REPEATING or event.code in self._overrides:
            return []
        if event.code == 13 and not event.place:
            return []
        times = self._history.bursts(event.pci, event.code, event.place, now)
        if times < BURSTS or self._history.elsewhere(event.pci, event.code, now):
            return []
        where = f"GPU {event.pci}" + (f", {event.place}" if event.place else "")
        what = f"Xid {event.code} {times} times in a day here and on no other GPU"
        finding = Finding(
            component=f"gpu/{event.pci}",
            condition="XidRepeats",
            severity=Severity.DEGRADED,
            message=f"{where}: {what}; NVIDIA's field diagnostics can tell hardware from program",
            evidence=line.text[:EVIDENCE_CHARS],
            suggested_action=SuggestedAction.WATCH,
            rule=f"repeats of Xid {event.code}",
            injected=line.injected,
        )
        return [Faulty(finding)]

    def _finding(self, event: XidEvent, line: KernelLine, verdict: Verdict, gpu: _Gpu) -> Finding:
        assert verdict.severity is not None
        row = self._tables.xids.row(event.code, None)
        message = f"GPU {event.pci}: Xid {event.code}" + (f", {row.name}" if row else "")
        message += f"{';' if row else ','} {verdict.why}" if verdict.why else ""
        others = [f"{code}" for code in gpu.codes if code != event.code]
        message += f" (together with Xid {', '.join(others)})" if others else ""
        return Finding(
            component=f"gpu/{event.pci}",
            condition=_CONDITIONS[verdict.severity],
            severity=verdict.severity,
            message=message,
            evidence=line.text[:EVIDENCE_CHARS],
            suggested_action=verdict.action,
            rule=verdict.rule,
            injected=line.injected,
        )

    def _driver_word(
        self, event: XidEvent, line: KernelLine, gpu: _Gpu, now: Moment
    ) -> list[Judgement]:
        action = recovery_action(event.text)
        if action is None:
            return []
        gpu.advised, gpu.advised_ns = action, now.boot_ns
        evidence = line.text[:EVIDENCE_CHARS]
        said = recovery_finding(event.pci, action, XID_154_RULE, evidence, line.injected)
        open_fault = self.open_finding(FindingKey(f"gpu/{event.pci}", "XidFatal"))
        verdict = by_driver(DriverAdvice(action, XID_154_RULE))
        recent = gpu.last is not None and now.boot_ns - gpu.last.boot_ns <= _ADVICE_NS
        if open_fault is None or not recent or verdict.severity is not Severity.FATAL:
            return [said]
        if not open_fault.rule.startswith(("Xid table", "NVLink5 table", "Xid 74 registers")):
            return [said]
        decided = replace(
            open_fault,
            suggested_action=verdict.action,
            rule=verdict.rule,
            message=f"{open_fault.message}; {verdict.why}",
        )
        return [said, Faulty(decided)]


def _join(gpu: _Gpu, event: XidEvent, now: Moment) -> None:
    if gpu.last is not None and now.boot_ns - gpu.last.boot_ns > BURST_GAP_NS:
        gpu.codes.clear()
    gpu.codes[event.code] += 1
    gpu.last = now


def _driver_advice(
    event: XidEvent, gpu: _Gpu, truth: DriverTruth, now: Moment
) -> DriverAdvice | None:
    if (action := truth.actions.get(event.pci)) is not None:
        return DriverAdvice(action, FIELD_230_RULE)
    if gpu.advised is not None and now.boot_ns - gpu.advised_ns <= _ADVICE_NS:
        return DriverAdvice(gpu.advised, XID_154_RULE)
    return None


def _link(event: XidEvent) -> str:
    words = event.text.partition("detected on link ")[2]
    number = words[: len(words) - len(words.lstrip("0123456789"))]
    return f"link {number}" if event.code == 74 and number else ""


def _power_smoothing(event: XidEvent, line: KernelLine) -> Judgement:
    key = FindingKey(f"gpu/{event.pci}", "PowerSmoothingOff")
    evidence = line.text[:EVIDENCE_CHARS]
    if event.code == 162:
        return Healthy(key, evidence)
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.INFO,
            message=f"GPU {event.pci}: Xid 163, power smoothing is off",
            evidence=evidence,
            rule="Xid 163",
            injected=line.injected,
        )
    )
