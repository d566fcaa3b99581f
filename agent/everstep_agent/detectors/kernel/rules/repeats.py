"""Repeats: kernel messages that mean more when they come several times within a short while."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from everstep_common.judging.condition import BOOT_GRACE_NS, HOUR_NS, MINUTE_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction

CONDITIONS = (
    Condition(
        name="NicLinkFlapping",
        component="link/INTERFACE",
        meaning="a link went down three times within ten minutes, as the kernel log tells",
        source="gpud calls three a flap; the minutes are our own choice",
        clears_when="no further message",
        quiet_ns=HOUR_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieErrorStorm",
        component="pcie/PCI",
        meaning="a device reported 20 corrected PCIe errors within a minute (AER), of which newer "
        "kernels log 10 in 5 s at most",
        source="our own choice: a healthy link has less than one an hour",
        clears_when="no further message",
        quiet_ns=HOUR_NS,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True)
class _Repeat:
    """What ``times`` findings of one component within ``window_ns`` stand for."""

    condition: str
    times: int
    window_ns: int
    message: str
    action: SuggestedAction


_REPEATS: Mapping[str, _Repeat] = {
    "NicLinkDown": _Repeat(
        "NicLinkFlapping",
        3,
        10 * MINUTE_NS,
        "the link went down three times within ten minutes",
        SuggestedAction.REPAIR_HARDWARE,
    ),
    "PcieErrorCorrected": _Repeat(
        "PcieErrorStorm",
        20,
        MINUTE_NS,
        "20 corrected PCIe errors within a minute",
        SuggestedAction.REPAIR_HARDWARE,
    ),
}
# A node has some dozens of links and devices; a log of many nodes has a counter for each of them.
_COUNTED_MAX = 1024


class Repeats:
    """Times at which findings came that mean more together."""

    def __init__(self) -> None:
        self._seen: dict[FindingKey, deque[int]] = {}

    def count(self, finding: Finding, at_ns: int, *, since_boot: bool) -> Finding | None:
        """Return what a finding means with those before it.

        ``since_boot``: the moment is on the boot clock, in whose first minutes links come up.
        """
        repeat = _REPEATS.get(finding.condition)
        if repeat is None or (since_boot and at_ns < BOOT_GRACE_NS):
            return None
        if finding.key not in self._seen and len(self._seen) >= _COUNTED_MAX:
            return None
        seen = self._seen.setdefault(finding.key, deque(maxlen=repeat.times))
        seen.append(at_ns)
        if len(seen) < repeat.times or at_ns - seen[0] > repeat.window_ns:
            return None
        return replace(
            finding,
            condition=repeat.condition,
            severity=Severity.DEGRADED,
            message=f"{finding.component.partition('/')[2]}: {repeat.message}",
            suggested_action=repeat.action,
            rule=f"{finding.condition} {repeat.times} times",
        )
