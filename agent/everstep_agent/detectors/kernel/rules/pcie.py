"""PCIe rules: kernel messages about devices on the PCI bus, the ports before them, and IOMMUs."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OVER = "no further message"
_KERNEL = "kernel message"
_INFO, _DEGRADED, _FATAL = Severity.INFO, Severity.DEGRADED, Severity.FATAL
_WATCH, _REBOOT = SuggestedAction.WATCH, SuggestedAction.REBOOT_NODE
_REPAIR = SuggestedAction.REPAIR_HARDWARE

CONDITIONS = (
    Condition(
        name="PcieErrorFatal",
        component="pcie/PCI",
        meaning="a device reported an uncorrected fatal PCIe error (AER)",
        source="kernel message; the link is reset by it",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieErrorUncorrected",
        component="pcie/PCI",
        meaning="a device reported an uncorrected, not fatal PCIe error (AER)",
        source="kernel message; a transfer was lost",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieErrorCorrected",
        component="pcie/PCI",
        meaning="a device reported a corrected PCIe error (AER): the link repeats itself",
        source="any; it costs bandwidth when it goes on",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="PcieDeviceCutOff",
        component="pcie/PCI",
        meaning="a port cut off the device behind it because of an error (DPC), or the device "
        "cannot be reached any more",
        source=_KERNEL,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieLinkLost",
        component="pcie/PCI",
        meaning="the link to the device in a slot went down, did not come up, or the slot has no "
        "power (pciehp)",
        source=_KERNEL,
        clears_when="the kernel says that the slot's link is up; or no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="IommuTimeout",
        component="host/iommu",
        meaning="an IOMMU, or a device that it asked, did not answer a command in time",
        source=_KERNEL,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="IommuFault",
        component="pcie/PCI",
        meaning="an IOMMU refused a device access to memory; firmware of some servers has one at "
        "each boot",
        source=_KERNEL,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
)

_GRADES = {
    "Corrected": (_INFO, _WATCH),
    "Uncorrected": (_DEGRADED, _WATCH),
    "Fatal": (_FATAL, _REBOOT),
}


def _aer(needle: str, pattern: str, grade: str) -> LineRule:
    severity, action = _GRADES[grade]
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=f"PcieError{grade}",
        component="pcie/{pci}",
        message=f"PCIe error of {{pci}}: {grade.lower()}",
        severity=severity,
        action=action,
        of_port=True,
    )


def _port(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    severity: Severity = _DEGRADED,
    action: SuggestedAction = _REBOOT,
    *,
    ends: bool = False,
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=condition,
        component="pcie/{pci}",
        message=f"PCIe {{pci}}: {message}",
        severity=severity,
        action=action,
        ends=ends,
        of_port=True,
    )


def _iommu(needle: str, pattern: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="IommuTimeout",
        component="host/iommu",
        message="an IOMMU command was not answered in time",
        action=_REBOOT,
    )


def _fault(needle: str, pattern: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="IommuFault",
        component="pcie/{pci}",
        message="an IOMMU refused {pci} access to memory",
        severity=_INFO,
    )


# "AER: Corrected error received: 0000:3b:00.0", newer: "AER: Correctable error message received
# from 0000:3b:00.0"; "Multiple " may stand before the grade.
_AER_FROM = rf" error (?:message )?received(?: from|:) {PCI}"
# Kernels up to 4.16 name the source by its number only: "id=3b00"; the line begins with the port.
_AER_ID = r" error received: id=[0-9a-f]{4}"
_BUS = rf"{PCI}: (?:AER: )?PCIe Bus Error: severity="
_UNCORRECTED = r"(?i:Uncorrect(?:ed|able) \(Non-Fatal\))"
_UNCORRECTED_FATAL = r"(?i:Uncorrect(?:ed|able) \(Fatal\))"
_SLOT = rf"(?:pcieport|pciehp) {PCI}(?::pcie\w{{1,8}})?: (?:pciehp: )?Slot ?\([^)]{{1,20}}\): "
# "[3b:00.0]" of Intel's IOMMU stands for the first PCI domain.
_SHORT = r"\[(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\]"

RULES = (
    _aer("AER: ", rf"(?:Corrected|Correctable){_AER_FROM}", "Corrected"),
    _aer("AER: ", rf"{_UNCORRECTED}{_AER_FROM}", "Uncorrected"),
    _aer("AER: ", rf"{_UNCORRECTED_FATAL}{_AER_FROM}", "Fatal"),
    _aer("AER: ", rf"pcieport {PCI}: AER: (?:Multiple )?Corrected{_AER_ID}", "Corrected"),
    _aer("AER: ", rf"pcieport {PCI}: AER: (?:Multiple )?{_UNCORRECTED}{_AER_ID}", "Uncorrected"),
    _aer("AER: ", rf"pcieport {PCI}: AER: (?:Multiple )?{_UNCORRECTED_FATAL}{_AER_ID}", "Fatal"),
    _aer("PCIe Bus Error", rf"{_BUS}Correct", "Corrected"),
    _aer("PCIe Bus Error", rf"{_BUS}{_UNCORRECTED}", "Uncorrected"),
    _aer("PCIe Bus Error", rf"{_BUS}{_UNCORRECTED_FATAL}", "Fatal"),
    _aer("evice recovery failed", rf"{PCI}: AER: [dD]evice recovery failed", "Fatal"),
    _aer("can't recover", rf"{PCI}: AER: can't recover", "Fatal"),
    _port(
        "ERR_FATAL received from",
        rf"DPC: containment event, .{{0,60}}ERR_(?:NON)?FATAL received from {PCI}",
        "PcieDeviceCutOff",
        "its port cut it off after an error (DPC)",
        _FATAL,
    ),
    _port(
        "DPC: ",
        rf"{PCI}(?::pcie\w{{1,8}})?: DPC: (?:containment event"
        rf"|unmasked uncorrectable error detected"
        r"|ERR_(?:NON)?FATAL detected|RP PIO error detected|software trigger detected)",
        "PcieDeviceCutOff",
        "a port cut off what is behind it after an error (DPC)",
        _FATAL,
    ),
    _port(
        "DPC: ",
        rf"{PCI}(?::pcie\w{{1,8}})?: DPC: (?:Data Link Layer Link Active not|RP busy"
        rf"|.{{0,40}}timed out)",
        "PcieDeviceCutOff",
        "what is behind it did not come back after an error (DPC)",
        _FATAL,
    ),
    _port(
        "D3cold to D0",
        rf"{PCI}: (?:[Uu]nable to|can't) change power state from D3cold to D0"
        r"[ ,(]{1,2}(?:device inaccessible|config space inaccessible)",
        "PcieDeviceCutOff",
        "it cannot be reached",
        _FATAL,
    ),
    _port(
        "; giving up",
        rf"{PCI}: not ready \d+ms after .{{1,30}}; giving up",
        "PcieDeviceCutOff",
        "it did not come back after a reset",
        _FATAL,
    ),
    _port(
        "Slot",
        rf"{_SLOT}(?:Link Down(?! ignored|/Up)|Card not present|[Ss]urprise)",
        "PcieLinkLost",
        "the link of its slot went down",
    ),
    _port(
        "Slot",
        rf"{_SLOT}(?:Power fault|Failed to power on|Cannot train link|No link"
        rf"|Failed to check link)",
        "PcieLinkLost",
        "its slot has no power or no link",
        _DEGRADED,
        _REPAIR,
    ),
    _port("Slot", rf"{_SLOT}(?:Link Up|Card present)", "PcieLinkLost", "link up", ends=True),
    _iommu("Completion-Wait loop timed out", r"AMD-Vi: Completion-Wait loop timed out"),
    _iommu("IOTLB_INV_TIMEOUT", r"AMD-Vi: Event logged \[IOTLB_INV_TIMEOUT"),
    _iommu("Invalidation Time-out", r"DMAR: VT-d detected Invalidation (?:Time-out|Timeout)"),
    _iommu("nvalidation Queue Error", r"DMAR: VT-d detected Invalidation Queue Error"),
    _iommu("Queued invalidation", r"DMAR: (?:.{0,40}: )?Queued invalidation .{0,60}timeout"),
    _iommu("CMD_SYNC timeout", r"arm-smmu-v3 \S{1,60}: CMD_SYNC timeout"),
    _iommu("CMDQ timeout", r"arm-smmu-v3 \S{1,60}: CMDQ timeout"),
    _iommu("sync timed out", r"arm-smmu \S{1,60}: TLB sync timed out"),
    _fault("IO_PAGE_FAULT", rf"AMD-Vi: Event logged \[IO_PAGE_FAULT device={PCI}"),
    _fault("IO_PAGE_FAULT", rf"{PCI}: AMD-Vi: Event logged \[IO_PAGE_FAULT"),
    _fault("IO_PAGE_FAULT", r"AMD-Vi: Event logged \[IO_PAGE_FAULT device=(?P<pci>[0-9a-f:.]{7})"),
    _fault("DMAR: [", rf"DMAR: \[(?:DMA|INTR-REMAP)[^\]]{{0,30}}\] Request device {_SHORT}"),
)
