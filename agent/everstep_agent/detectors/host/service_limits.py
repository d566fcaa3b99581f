"""Service settings: the services and kernel modules to watch, as an operator may set them."""

from dataclasses import dataclass

from everstep_common.setting import positive, setting

PEER_MEMORY = "nvidia_peermem"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
# What a GPU node usually has. One that is not installed, or not meant to run, is no fault.
USUAL_UNITS = (
    FABRIC_MANAGER,
    "nvidia-persistenced.service",
    "nvidia-peermem.service",
    "nvidia-imex.service",
    "containerd.service",
    "docker.service",
    "kubelet.service",
    "slurmd.service",
    "munge.service",
    "chronyd.service",
    "chrony.service",
    "systemd-timesyncd.service",
    "ntpd.service",
    "openibd.service",
    "rdma.service",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Services to watch, and how many restarts of one are a fault."""

    units: tuple[str, ...] = setting(
        (),
        help='Units that must run on this node, as "lustre-client.service". The usual ones '
        f"({', '.join(name.removesuffix('.service') for name in USUAL_UNITS)}) are watched where "
        "they are installed, and must run where they are enabled.",
    )
    modules: tuple[str, ...] = setting(
        (),
        help='Kernel modules that must be loaded: ["nvidia_peermem"]. nvidia_peermem is watched '
        "from the moment it was loaded; newer kernels do without it (DMA-BUF).",
    )
    restarts_max: int = positive(
        3, help="So many automatic restarts within the window are a flap; NVSentinel's ADR-050."
    )
    restart_window_s: float = positive(
        600.0, unit="s", help="The window in which restarts are counted; NVSentinel's ADR-050."
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        return [
            f"signals.services.units: expected a full name like slurmd.service, got {unit!r}"
            for unit in self.units
            if "." not in unit
        ]
