"""Targets: the distributions and processors that packages are built for, and the packages."""

from dataclasses import dataclass

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Target:
    """A distribution: wheels of one Python do not run on another, so each has its packages."""

    name: str
    # As its packages are told apart: "0.1.0~deb12".
    suffix: str
    python: tuple[int, int]
    # The newest C library that its wheels may ask for.
    glibc: str

    @property
    def python_name(self) -> str:
        """Return the version of its Python in words: "3.11"."""
        return ".".join(map(str, self.python))


# Ubuntu 22.04 has Python 3.10, which Everstep does not run on (docs/packages.md says what to do).
TARGETS = {
    one.name: one
    for one in (
        Target("debian12", "deb12", (3, 11), "2.34"),
        Target("debian13", "deb13", (3, 13), "2.34"),
        Target("ubuntu2404", "ubuntu24.04", (3, 12), "2.34"),
    )
}


@dataclass(frozen=True, slots=True)
class Package:
    """A package: what it holds, and which programs of it are on everybody's path."""

    name: str
    # Extras of the distribution.
    extras: tuple[str, ...]
    programs: tuple[str, ...]
    units: tuple[str, ...]
    # Example configurations that are installed beside the documentation.
    examples: tuple[str, ...]
    # Packages of Python that nothing in it imports.
    left_out: tuple[str, ...]
    summary: str
    text: str

    @property
    def folder(self) -> str:
        """Return where its Python environment lies."""
        return f"/opt/everstep/{self.name.removeprefix('everstep-')}"


PACKAGES = {
    one.name: one
    for one in (
        Package(
            name="everstep-agent",
            extras=("agent",),
            programs=("everstep-agent",),
            units=("everstep-agent.service",),
            examples=("agent.toml",),
            left_out=("everstep_controller", "everstep_cli"),
            summary="Agent of Everstep: probes a node, keeps the snapshots of its training jobs",
            text="Runs on every node of a GPU cluster. It reads NVML, InfiniBand, the network, the"
            " kernel's log and the host, and streams what it finds to the controller.",
        ),
        Package(
            name="everstep-controller",
            # The agent's, too: the demonstration starts some.
            extras=("controller", "cli", "page", "kubernetes", "postgres", "hostlist", "agent"),
            programs=("everstep", "everstep-controller"),
            units=("everstep-controller.service", "everstep-page.service"),
            examples=("controller.toml",),
            left_out=(),
            summary="Controller of Everstep, with its command line and its page",
            text="Runs on one machine of a GPU cluster. It judges slow and failed nodes, isolates"
            " them, restarts jobs by the step and accounts for every second that was not"
            " training.",
        ),
    )
}
