"""NVLink: links that are down, and links that count errors minute after minute."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu
from everstep_agent.detectors.gpus.limits import DEFAULTS, GpuLimits
from everstep_agent.detectors.gpus.reading import GpuReading, NvlinkReading
from everstep_agent.detectors.readings.counters import Counters, FlaggedWindows, RateWindow
from everstep_common.judging.condition import BOOT_GRACE_NS, HOUR_NS, MINUTE_NS, Condition
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_WINDOWS = 30
_LONE_LEAST, _LONE_GROWTH, _LONE_TIMES = 100, 2, 100
# A link is compared with others only where there are some; two may be the ends of one.
_LONE_ENDS, _LONE_LINKS = 2, 4
_RECOVERED = ("recovery_events", "recoveries", "replays")
_COUNTED = ("recovery_events", "retry_blocks", "receive_errors", "replays", "recoveries")

CONDITIONS = (
    Condition(
        name="NvlinkDown",
        component="gpu/PCI",
        meaning="an NVLink is inactive that was active before, or that is active on most GPUs of "
        "this node, in three polls (30 s)",
        source="NVRx and gpud; three polls, because 214 of 288 nodes once raised this alarm at a "
        "planned reboot (NVSentinel issue 1701)",
        clears_when="all of them are active in three polls",
        raise_after=3,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvlinkErrors",
        window_ns=30 * MINUTE_NS,
        component="gpu/PCI",
        meaning="an NVLink's error counters (recoveries, replays, retries, receive errors) grew in "
        f"more than {DEFAULTS.nvlink_windows} of the last {_WINDOWS} minutes",
        source="NVIDIA's resiliency extension: NVLinkWindowHealthCheck",
        clears_when="they grew in fewer of them",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvlinkLoneErrors",
        window_ns=HOUR_NS,
        component="gpu/PCI",
        meaning=f"an NVLink has counted {_LONE_LEAST} recoveries and replays or more since the "
        f"driver was loaded, {_LONE_GROWTH} of them in the last hour, and the other links of the "
        "node have less than a hundredth of that (two links may stand out: both ends of one)",
        source="our own choice: healthy links of one node count none, or alike",
        clears_when="none within an hour, or the other links have some as well",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvlinkCrc",
        window_ns=MINUTE_NS,
        component="gpu/PCI",
        meaning=f"an NVLink counts {DEFAULTS.nvlink_crc_per_s:g} CRC errors a second or more, over "
        "a minute",
        source="DCGM: DCGM_LIMIT_MAX_NVLINK_CRC_ERROR",
        clears_when="five minutes with fewer",
        clear_after=30,
        mode=Mode.ADVISE,
    ),
)

_DOWN = GpuFault(
    "NvlinkDown", "an NVLink is down", "link state", action=SuggestedAction.RESET_DEVICE
)
_ERRORS = GpuFault(
    "NvlinkErrors",
    "an NVLink counts errors again and again",
    f"errors in most of {_WINDOWS} minutes",
    action=SuggestedAction.REPAIR_HARDWARE,
)
_LONE = GpuFault(
    "NvlinkLoneErrors",
    "one NVLink recovers from errors again and again, the others do not",
    "errors of one link of many",
    action=SuggestedAction.REPAIR_HARDWARE,
)
_CRC = GpuFault(
    "NvlinkCrc",
    "an NVLink has many CRC errors",
    "CRC errors a second",
    action=SuggestedAction.REPAIR_HARDWARE,
)


@dataclass(slots=True)
class _Link:
    """What is remembered of one link."""

    last: NvlinkReading | None = None
    was_active: bool = False
    minute: int = -1
    grown: bool = False
    windows: FlaggedWindows = field(default_factory=lambda: FlaggedWindows(_WINDOWS))
    flagged: int = 0
    hour: RateWindow = field(default_factory=lambda: RateWindow(HOUR_NS))
    in_hour: int = 0
    crc: RateWindow = field(default_factory=lambda: RateWindow(MINUTE_NS))


class NvlinkDetector:
    """Detector of the NVLinks of the node's GPUs, poll after poll."""

    def __init__(self, limits: GpuLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._links: dict[tuple[str, int], _Link] = {}

    def judge(self, gpus: Sequence[GpuReading], now: Moment) -> list[Judgement]:
        """Judge one complete look at the GPUs that answer."""
        usual = _usually_active(gpus)
        judgements: list[Judgement] = []
        for gpu in gpus:
            # With slices the driver does not tell of links; those without any have none to lose.
            if gpu.nvlinks and not gpu.mig_enabled:
                judgements.append(self._judge_state(gpu, usual))
                judgements += self._judge_errors(gpu, now)
        return judgements + self._judge_lone(gpus)

    def _judge_lone(self, gpus: Sequence[GpuReading]) -> list[Judgement]:
        """Judge links by each other: what all of them count is no fault of one."""
        counted = {
            (gpu.pci, link.link): total
            for gpu in gpus
            if not gpu.mig_enabled
            for link in gpu.nvlinks
            if (total := _recovered(link)) is not None
        }
        usual = sorted(counted.values(), reverse=True)[_LONE_ENDS:]
        if len(counted) < _LONE_LINKS:
            return []
        least = max(_LONE_LEAST, _LONE_TIMES * usual[0])
        found: dict[str, list[str]] = {}
        for (pci, link), total in counted.items():
            in_hour = self._links[pci, link].in_hour
            if total >= least and in_hour >= _LONE_GROWTH:
                words = f"link {link}: {total}, {in_hour} of them in the last hour"
                found.setdefault(pci, []).append(words)
        beside = f"the most of the other links: {usual[0]}"
        return [
            judge_gpu(gpu, _LONE, gpu.pci in found, "; ".join((*found.get(gpu.pci, []), beside)))
            for gpu in gpus
            if gpu.nvlinks and not gpu.mig_enabled
        ]

    def _known(self, gpu: GpuReading, link: NvlinkReading) -> _Link:
        return self._links.setdefault((gpu.pci, link.link), _Link())

    def _judge_state(self, gpu: GpuReading, usual: frozenset[int]) -> Judgement:
        down = []
        for link in gpu.nvlinks:
            known = self._known(gpu, link)
            known.was_active = known.was_active or link.active is True
            if link.active is False and (known.was_active or link.link in usual):
                down.append(link.link)
        if all(link.active is None for link in gpu.nvlinks):
            return judge_gpu(gpu, _DOWN, None, "the driver does not say")
        active = sum(1 for link in gpu.nvlinks if link.active)
        evidence = f"links down: {down}" if down else f"{active} links are active"
        return judge_gpu(gpu, _DOWN, bool(down), evidence)

    def _judge_errors(self, gpu: GpuReading, now: Moment) -> tuple[Judgement, ...]:
        flagged, rates = {}, {}
        for link in gpu.nvlinks:
            known = self._known(gpu, link)
            flagged[link.link] = self._take_errors(gpu, link, known, now)
            if link.crc is not None:
                grown = self._growth(gpu, link, known, ("crc",), now)
                rates[link.link] = known.crc.add_growth(grown, now.boot_ns) / 60
            known.last = link
        bad = {
            link: count for link, count in flagged.items() if count > self._limits.nvlink_windows
        }
        noisy = {
            link: round(rate)
            for link, rate in rates.items()
            if rate >= self._limits.nvlink_crc_per_s
        }
        return (
            judge_gpu(gpu, _ERRORS, bool(bad), f"minutes with errors, by link: {bad or 'few'}"),
            judge_gpu(
                gpu,
                _CRC,
                bool(noisy) if rates else None,
                f"CRC errors a second, by link: {noisy or 'few'}",
            ),
        )

    def _growth(
        self, gpu: GpuReading, link: NvlinkReading, known: _Link, names: Sequence[str], now: Moment
    ) -> int:
        """Return how much counters of a link have grown since the last look at them."""
        if known.last == link:
            # The usual case, for hundreds of counters.
            return 0
        grown = 0
        for name in names:
            value: int | None = getattr(link, name)
            if value is not None:
                grown += self._counters.add_reading(
                    f"{gpu.component}/nvlink/{link.link}/{name}", value, now
                ).count
        return grown

    def _take_errors(self, gpu: GpuReading, link: NvlinkReading, known: _Link, now: Moment) -> int:
        """Return in how many of the last minutes that are over the link counted errors."""
        grown = self._growth(gpu, link, known, _COUNTED, now)
        known.in_hour = known.hour.add_growth(grown, now.boot_ns)
        known.grown = known.grown or grown > 0
        minute = now.boot_ns // MINUTE_NS
        if known.minute != minute:
            if known.minute >= 0:
                known.flagged = known.windows.add_poll(known.grown)
            known.minute, known.grown = minute, False
        return known.flagged


def _recovered(link: NvlinkReading) -> int | None:
    """Return what a link has recovered from; None where the driver does not count it."""
    counts: list[int | None] = [getattr(link, name) for name in _RECOVERED]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _usually_active(gpus: Sequence[GpuReading]) -> frozenset[int]:
    """Return the links that are active on more than half of the GPUs that have links."""
    having = [gpu for gpu in gpus if gpu.nvlinks and not gpu.mig_enabled]
    counts: dict[int, int] = {}
    for gpu in having:
        for link in gpu.nvlinks:
            counts[link.link] = counts.get(link.link, 0) + bool(link.active)
    return frozenset(link for link, count in counts.items() if count * 2 > len(having))
