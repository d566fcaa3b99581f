"""Accelerator readings: what is read of devices of any vendor but NVIDIA, and their conditions."""

from dataclasses import dataclass

from everstep_common.judging.condition import BOOT_GRACE_NS, MINUTE_NS, Condition
from everstep_common.setting import positive

# None of the adapters has met the hardware that it was written for (their docstrings say for which
# version), so nothing here acts on a node: Mode.OBSERVE, the default, until somebody has seen it
# be right.
_UNPROVEN = "the adapters were written from the vendors' documents and not run on the hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorReading:
    """Reading of one device of a vendor's tool; None where the tool does not know, or say.

    ``id`` names the device within its vendor: its PCI address, or its number where the tool gives
    no address. ``error``: the device is listed, but does not answer. ``temperature_limit_c`` is the
    device's own threshold for the sensor that ``temperature_c`` comes from.
    """

    vendor: str
    id: str
    name: str
    serial: str = ""
    pci: str = ""
    driver: str = ""
    firmware: str = ""
    memory_bytes: int | None = None
    memory_used_ratio: float | None = None
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    # Counters since the driver was loaded or the device was reset.
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    # The tool's own word, and what it says beside it.
    health: str = ""
    health_detail: str = ""
    processes: int | None = None
    error: str = ""

    @property
    def component(self) -> str:
        """Return what findings are about."""
        return f"accelerator/{self.vendor}-{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorsReading:
    """One answer of one tool.

    ``absent`` says why there is none: a fact, no error. ``blind`` says what the tool could tell and
    does not on this node.
    """

    tool: str
    version: str = ""
    devices: tuple[AcceleratorReading, ...] = ()
    absent: str = ""
    blind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorLimits:
    """Thresholds at which a device of another vendor than NVIDIA is judged faulty."""

    ecc_corrected_per_s: float = positive(
        10.0,
        unit="1/s",
        help="Corrected memory errors per second, as the mean over five minutes. Healthy memory "
        "corrects a few a day; the one published case of a failing GPU had 17,657 per second.",
    )
    memory_kept_ratio: float = positive(
        0.15,
        most=1,
        help="Share of device memory in use without any process. An idle Ascend NPU keeps 3 GB of "
        "32 GB for itself (DCMI reference), which is the most of all vendors.",
    )


_LIMITS = AcceleratorLimits()

CONDITIONS = (
    Condition(
        name="AcceleratorLost",
        component="accelerator/VENDOR-ID",
        meaning="a device that was there is no longer listed, or does not answer, in 3 polls",
        source=f"three: a driver that is reloaded lists no device for a moment; {_UNPROVEN}",
        clears_when="the device is listed and answers in 3 polls",
        raise_after=3,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
    ),
    Condition(
        name="AcceleratorUnhealthy",
        component="accelerator/VENDOR-ID",
        meaning="the vendor's tool reports the device as not healthy, in 2 polls",
        source="the tool's own word: npu-smi (Health), Intel xpu-smi (health); amdgpu, hy-smi and "
        f"Kunlunxin's xpu-smi have none; {_UNPROVEN}",
        clears_when="the tool calls the device healthy in 3 polls",
        raise_after=2,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
    ),
    Condition(
        name="AcceleratorEccUncorrected",
        component="accelerator/VENDOR-ID",
        meaning="the counter of uncorrected memory errors is above 0",
        source="any: data was lost; the counters begin at 0 with the driver or a reset",
        clears_when="the counter stands at 0 again: the device was reset or the node rebooted",
    ),
    Condition(
        name="AcceleratorEccCorrectedRate",
        window_ns=5 * MINUTE_NS,
        component="accelerator/VENDOR-ID",
        meaning=f"{_LIMITS.ecc_corrected_per_s:g} corrected memory errors per second or more, "
        "as the mean over 5 minutes",
        source="ours, to be calibrated: DCGM issue 313 is the only published case (17,657 per "
        "second, not an alarm anywhere)",
        clears_when="the mean over 5 minutes is below the limit in 3 polls",
        clear_after=3,
    ),
    Condition(
        name="AcceleratorTooHot",
        component="accelerator/VENDOR-ID",
        meaning="a sensor is at or above the device's own threshold in 3 polls",
        source="the device: hwmon tempN_crit of amdgpu, throttle threshold of Intel's xpu-smi; "
        "tools that give no threshold are not judged",
        clears_when="the sensor is below the threshold in 3 polls",
        raise_after=3,
        clear_after=3,
    ),
    Condition(
        name="AcceleratorPcieNarrow",
        component="accelerator/VENDOR-ID",
        meaning="the PCIe link has fewer lanes than device and slot could have, in 10 polls",
        source="current_link_width and max_link_width of sysfs; only amdgpu is read there",
        clears_when="the link has all its lanes in 10 polls",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
    ),
    Condition(
        name="AcceleratorMemoryKept",
        component="accelerator/VENDOR-ID",
        meaning=f"more than {_LIMITS.memory_kept_ratio:.0%} of the memory is in use and the tool "
        "lists no process, in 10 polls",
        source="ours: memory of a process that died without giving it back; a tool may not see "
        "the processes of containers",
        clears_when="a process is listed or the memory is free, in 2 polls",
        raise_after=10,
        clear_after=2,
    ),
)
