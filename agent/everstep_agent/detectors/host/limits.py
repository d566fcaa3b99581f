"""Host limits: the thresholds of the host's signals that an operator may set."""

from dataclasses import dataclass

from everstep_common.setting import not_negative, positive, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Thresholds of the host's signals, and the file systems that this node must have."""

    mounts: tuple[str, ...] = setting(
        (),
        help='Mount points that must be mounted: ["/data", "/scratch"]. Without its data a job'
        " cannot train, so a missing one is fatal.",
    )
    mount_deadline_s: float = positive(
        5.0,
        unit="s",
        help="Deadline for a network or user-space file system to answer statfs and to list "
        "one name. A healthy one needs milliseconds.",
    )
    disk_free_min_ratio: float = not_negative(
        0.02,
        most=1,
        help="Share of a disk that must be free: below it logs and checkpoints soon fail.",
    )
    disk_free_bytes_min: int = setting(
        512 << 20,
        unit="bytes",
        help="So much is enough on a disk of any size; gpud warns at 500 MB.",
    )
    inodes_free_min_ratio: float = not_negative(
        0.02,
        most=1,
        help="Share of a disk's inodes that must be free: without one no file can be made.",
    )
    memory_available_min_ratio: float = not_negative(
        0.02,
        most=1,
        help="Share of main memory that must be available: below it processes are killed.",
    )
    swap_used_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        help="Swapped memory that is normal: idle daemons are swapped out once. A training "
        "process that swaps waits for a disk in every step.",
    )
    usage_warning_ratio: float = not_negative(
        0.80,
        most=1,
        help="Share of the kernel's limit on open files, tasks or tracked connections from which "
        "the node is degraded; gpud's.",
    )
    usage_fatal_ratio: float = not_negative(
        0.95, most=1, help="The same from which it is about to fail; gpud's."
    )
    load_per_cpu_max: float = positive(
        2.0,
        unit="tasks per CPU",
        help="Load over five minutes, divided by the CPUs, above which data loaders wait for each "
        "other. Site rules for LBNL NHC (check_ps_loadavg) use twice the cores.",
    )
    cpu_governor: str = setting(
        "performance",
        help="Governor that every CPU should have, as Meta's gcm checks it; empty when it does "
        "not matter. Slower clocks of one node slow every step of the whole job.",
    )
    clock_offset_max_s: float = positive(
        0.05,
        unit="s",
        help="Offset that the kernel is still correcting; node-exporter's alert NodeClockSkew"
        "Detected uses 50 ms.",
    )
    stuck_tasks_age_s: float = positive(
        300.0,
        unit="s",
        help="How long a process may wait in the kernel without being killable (state D); Meta's "
        "gcm uses 300 s.",
    )
    zombies_max: int = positive(
        20, help="Number of zombie processes; AWS's node monitoring agent uses 20."
    )
    zombies_many: int = positive(
        1000, help="So many that the table of processes fills up; gpud uses 1,000."
    )
    dimm_corrected_per_day_max: int = positive(
        10,
        help="Corrected errors of one memory module in 24 h; mcelog's default. More of them "
        "announce an uncorrectable one.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        found = []
        if self.usage_fatal_ratio < self.usage_warning_ratio:
            found.append("usage_fatal_ratio: must not be below usage_warning_ratio")
        found += [
            f"mounts: expected absolute paths, got {mount!r}"
            for mount in self.mounts
            if not mount.startswith("/")
        ]
        return [f"signals.host.{problem}" for problem in found]


DEFAULT_LIMITS = HostLimits()
