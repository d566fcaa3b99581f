"""SXid errors: the NVSwitch errors that the NVIDIA driver logs, how they are parsed and judged."""

import re
from collections.abc import Mapping

from everstep_agent.detectors.kernel.gpu_faults.fault_tables import SxidClass, SxidRow
from everstep_agent.detectors.kernel.rules.line import PCI, KernelLine, is_the_kernels, pci_address
from everstep_agent.detectors.kernel.rules.rule import EVIDENCE_CHARS
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Judgement

NEEDLE = "SXid ("
_QUIET_NS = HOUR_NS
_GUIDE = "tables/sxid.csv, from the four tables of NVIDIA's Fabric Manager guide"

CONDITIONS = (
    Condition(
        name="SxidFatal",
        component="nvswitch/PCI",
        meaning="an NVSwitch logged an SXid that is fatal to a port or to the whole fabric",
        source=_GUIDE,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="SxidStall",
        component="nvswitch/PCI",
        meaning="an NVSwitch logged an SXid that is not fatal to it, but stalls traffic",
        source=_GUIDE,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="SxidUnknownFatal",
        component="nvswitch/PCI",
        meaning="an NVSwitch logged an SXid that the driver calls fatal and that is in no table",
        source="reported by the driver",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="SxidObserved",
        component="nvswitch/PCI",
        meaning="an NVSwitch logged an SXid that is notable, or in no table",
        source=_GUIDE,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
    ),
)

# "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"; those of the
# switch's own processor have neither the driver's word nor a link: "…: 26006, SOE HALTED".
_SXID = re.compile(
    rf"SXid \({PCI}\): (?P<code>\d{{1,6}}),?\s*(?:(?P<word>Fatal|Non-?fatal),?\s*)?"
    r"(?:Link\s+(?P<link>\d+))?",
    re.I,
)

_UNKNOWN = ", which is in no table"
_REACH = {
    SxidClass.STALL: "traffic stands still",
    SxidClass.FATAL: "a port is dead",
    SxidClass.ALWAYS_FATAL: "the whole fabric is dead",
}


def judge_sxid(line: KernelLine, table: Mapping[int, SxidRow]) -> Judgement | None:
    """Return what a line says of a switch; an error that the switch corrected is no finding."""
    match = _SXID.search(line.text)
    if match is None or not is_the_kernels(match):
        return None
    code, pci = int(match["code"]), pci_address(match["pci"])
    row = table.get(code)
    if row is not None and row.kind is SxidClass.CORRECTED:
        return None
    fatal = (match["word"] or "").lower() == "fatal"
    condition, severity, action = _grade(row, fatal)
    where = f"NVSwitch {pci}" + (f", link {match['link']}" if match["link"] else "")
    unknown = ", which is in no table; the driver calls it fatal" if fatal else _UNKNOWN
    what = f", {row.name}" if row else unknown
    reach = f": {_REACH[row.kind]}" if row and row.kind in _REACH else ""
    return Faulty(
        Finding(
            component=f"nvswitch/{pci}",
            condition=condition,
            severity=severity,
            message=f"{where}: SXid {code}{what}{reach}",
            evidence=line.text[:EVIDENCE_CHARS],
            suggested_action=action,
            rule=f"SXid table: {code}" if row else "unknown SXid",
            injected=line.injected,
        )
    )


def _grade(row: SxidRow | None, fatal: bool) -> tuple[str, Severity, SuggestedAction]:
    if row is None and fatal:
        return "SxidUnknownFatal", Severity.DEGRADED, SuggestedAction.WATCH
    if row is None or row.kind is SxidClass.NOTABLE:
        return "SxidObserved", Severity.INFO, SuggestedAction.WATCH
    if row.kind is SxidClass.STALL:
        return "SxidStall", Severity.DEGRADED, SuggestedAction.REBOOT_NODE
    return "SxidFatal", Severity.FATAL, SuggestedAction.REBOOT_NODE
