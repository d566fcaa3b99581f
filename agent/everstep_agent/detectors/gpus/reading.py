"""GPU readings: what the NVIDIA driver says of its GPUs, as the GPU detectors judge it."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag


class RecoveryAction(IntEnum):
    """NVML field 230 (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION), nvml.h of driver 570."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


class ClockReason(IntFlag):
    """Reasons why clocks are not at their highest: nvmlClocksEventReasons of nvml.h."""

    IDLE = 0x1
    APPLICATION_SETTING = 0x2
    SOFTWARE_POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_SETTING = 0x100


# nvmlReturn_t of nvml.h: tells a GPU that needs a reset from one that is gone.
RESET_REQUIRED = 16
# nvmlReturn_t of nvml.h: the NVML library is of another version than the kernel module.
VERSION_MISMATCH = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkReading:
    """One NVLink of one GPU: its state, and its error counters as far as this driver has them.

    ``recovery_events``, ``retry_blocks`` and ``receive_errors`` are fields 215, 295 and 208 (NVLink
    5); ``replays``, ``recoveries`` and ``crc`` are those of older links.
    """

    link: int
    active: bool | None = None
    recovery_events: int | None = None
    retry_blocks: int | None = None
    receive_errors: int | None = None
    replays: int | None = None
    recoveries: int | None = None
    crc: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricReading:
    """State of a GPU in its NVSwitch fabric; health None: this driver does not say."""

    state: int
    status: int = 0
    health_mask: int | None = None
    health_summary: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds device memory; bytes None where the driver does not say."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A slice of a GPU."""

    uuid: str
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Answer of the driver about one GPU; None where it does not know. ``error``: no answer.

    What the driver counts in "volatile" counters begins at its load; "aggregate" ones live in the
    GPU. Thermal limits are absolute on older GPUs and distances (``…_tlimit_c``) on newer ones.
    """

    index: int
    uuid: str
    name: str
    pci: str
    memory_bytes: int = 0
    vbios: str = ""
    inforom: str = ""
    sm_clock_max_mhz: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_max_c: int | None = None
    memory_temperature_max_c: int | None = None
    max_tlimit_c: int | None = None

    error: str = ""
    error_code: int | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: int | None = None
    recovery_action: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None

    # Read every tenth poll: they change in minutes, and the driver takes longer over them.
    ecc_enabled: bool | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    sram_threshold_exceeded: bool | None = None
    sram_parity: int | None = None
    sram_secded: int | None = None
    sram_parity_aggregate: int | None = None
    sram_secded_aggregate: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_banks_exhausted: int | None = None
    retired_single_bit: int | None = None
    retired_double_bit: int | None = None
    retired_pending: bool | None = None
    thermal_margin_c: int | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    nvlinks: tuple[NvlinkReading, ...] = ()
    fabric: FabricReading | None = None
    persistence: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None
    graphics_processes: int | None = None
    mig_enabled: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()

    @property
    def component(self) -> str:
        """Return its name in findings."""
        return f"gpu/{self.pci}"

    def throttled_by(self, reasons: int) -> bool | None:
        """Return whether one of the reasons holds its clocks down; None when it does not say."""
        return None if self.clock_reasons is None else bool(self.clock_reasons & reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusReading:
    """One answer of the driver. ``absent`` says why there is none: a fact, no error.

    ``complete``: what is read every tenth poll is new in it. ``dead_pids``: which of the processes
    do not exist any more; None where the agent cannot see the node's processes.
    """

    driver: str = ""
    library: str = ""
    gpus: tuple[GpuReading, ...] = ()
    absent: str = ""
    absent_code: int | None = None
    complete: bool = True
    dead_pids: tuple[int, ...] | None = None
    # Why the driver sends no events (Xid, ECC) by itself; empty where it does.
    no_events: str = ""
    # How long the driver took over this answer.
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that the driver told unasked: "xid" with its code, "ecc_single", "ecc_double"."""

    pci: str
    kind: str
    data: int
