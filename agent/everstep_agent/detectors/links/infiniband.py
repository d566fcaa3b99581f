"""InfiniBand detector: what the counters of a port say, and whether its device files exist."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.links import single_port_errors
from everstep_agent.detectors.links.error_minutes import ErrorMinutes
from everstep_agent.detectors.links.errors import CountersReading, ErrorCounters
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.links.infiniband_rules import REGISTERS, rules
from everstep_agent.detectors.links.single_port_errors import LoneRecoveries
from everstep_agent.detectors.readings.counters import Counters, Growth
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

CONDITIONS = (
    *(rule.declared() for rule in rules(InfinibandLimits())),
    *single_port_errors.CONDITIONS,
    Condition(
        name="RdmaDeviceFileMissing",
        component="link/DEVICE",
        meaning="the device file of an HCA (/dev/infiniband/uverbsN), which was there, is gone",
        source="NVSentinel issue 1546; udev makes the files again",
        clears_when="the file is there",
        raise_after=3,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device file that an HCA should have. ``there`` is None when it could not be read."""

    device: str
    path: str
    there: bool | None


class InfinibandDetector:
    """Detector over the counters of every InfiniBand port, and the device files."""

    def __init__(
        self, counters: Counters, history: LinkHistory, limits: InfinibandLimits | None = None
    ) -> None:
        self._errors = ErrorCounters(rules(limits or InfinibandLimits()), REGISTERS, counters)
        self._history = history
        self._lone = LoneRecoveries()
        self._had_file: set[str] = set()
        # For the controller, which compares nodes.
        self.minutes = ErrorMinutes()

    def judge(
        self, readings: Sequence[CountersReading], now: Moment, *, injected: bool = False
    ) -> Iterable[Judgement]:
        """Judge one reading of the counters of all ports. ``injected``: some were made up."""
        recoveries: dict[str, Growth] = {}
        by_port: dict[str, dict[str, Growth]] = {}
        for reading in readings:
            grown = by_port[reading.link] = self._errors.grow(reading, now)
            if growth := grown.get(single_port_errors.COUNTER):
                recoveries[reading.link] = growth
            yield from self._errors.judge(reading.link, grown, now)
            if (downed := grown.get("link_downed")) and not downed.reset:
                yield from self._history.lost(reading.link, downed.count, now)
        yield from self._lone.judge(recoveries, now)
        if not injected:
            self.minutes.add(by_port, now)

    def judge_files(self, files: Collection[DeviceFile]) -> Iterable[Judgement]:
        """Judge the device files; one that was never there may not be wanted here."""
        for file in files:
            key = FindingKey(f"link/{file.device}", "RdmaDeviceFileMissing")
            if file.there:
                self._had_file.add(file.device)
                yield Healthy(key, file.path)
            elif file.there is None:
                yield Unknown(key, "it could not be read")
            elif file.device in self._had_file:
                yield _missing_file(key, file)


def _missing_file(key: FindingKey, file: DeviceFile) -> Faulty:
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message=f"{file.path} is gone: no program can open {file.device}",
            evidence=f"{file.path} does not exist",
            suggested_action=SuggestedAction.REBOOT_NODE,
            rule="was there before",
        )
    )
