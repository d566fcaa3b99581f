"""GPU limits: the thresholds of the GPU detectors that an operator may set."""

from dataclasses import dataclass

from everstep_common.setting import Bounds, positive, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """Thresholds at which a GPU that still works counts as degraded."""

    ecc_corrected_per_s: float = positive(
        10.0,
        unit="1/s",
        help="Corrected memory errors a second, over five minutes, from which on a GPU is watched. "
        "Ours: healthy GPUs correct a few a day.",
    )
    ecc_storm_per_s: float = positive(
        1000.0,
        unit="1/s",
        help="The same over one minute, from which on it is suspect. The one storm on record was "
        "17,657 a second, on a GPU that every tool called healthy (DCGM issue 313).",
    )
    remapped_rows: int = positive(
        512,
        help="Rows remapped after uncorrectable errors. DCGM warns from here on.",
    )
    retired_pages: int = positive(
        63, help="Retired pages (GPUs before Ampere). The driver's table holds 64; DCGM warns here."
    )
    retired_double_bit: int = positive(
        15,
        help="Pages retired after double-bit errors above which more than one in a week counts as "
        "failing, as in DCGM.",
    )
    slowdown_minutes: int = positive(
        6,
        most=10,
        help="In how many of the last ten minutes the hardware may slow itself down, as in gpud: "
        "single ones are load steps.",
    )
    # GPUs idle 50 °C below their limit: from there on every one would be too hot.
    thermal_margin_c: int = setting(
        0,
        unit="°C",
        bounds=Bounds(most=50),
        help="Distance to the GPU's own limit at which it is too hot; the driver lowers clocks "
        "from there on.",
    )
    clock_ratio: float = positive(
        0.8,
        most=1,
        help="SM clock as a share of the median of this node's busy GPUs below which one is slow. "
        "Ours: power and silicon spread them by 5 to 10 %.",
    )
    busy_ratio: float = positive(
        0.9, most=1, help="From this share of time with a kernel running on, a GPU counts as busy."
    )
    nvlink_windows: int = positive(
        15,
        most=29,
        help="In how many of the last 30 minutes an NVLink may count errors, as in NVIDIA's "
        "resiliency extension.",
    )
    nvlink_crc_per_s: float = positive(
        100.0, unit="1/s", help="CRC errors of an NVLink, over a minute. DCGM fails from here on."
    )
    unowned_memory_bytes: int = positive(
        1 << 30,
        unit="bytes",
        help="Device memory in use without any process. Ours: what driver and display need stays "
        "below.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        if 0 < self.ecc_storm_per_s < self.ecc_corrected_per_s:
            return ["signals.gpu.ecc_storm_per_s: must not be below ecc_corrected_per_s"]
        return []


DEFAULTS = GpuLimits()
