"""Injection specifications: every kind of fault that can be injected, with its parameters."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class XidSpec:
    """A line of the NVIDIA driver in the kernel log; an empty ``pci`` is the first GPU."""

    code: int
    pci: str = ""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"Xid {self.code} of GPU {self.pci}"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Any line in the kernel log."""

    text: str

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return "a kernel line"


@dataclass(frozen=True, slots=True)
class EccSpec:
    """Memory errors: so many at once, or so many each second."""

    kind: str
    count: int
    each_second: bool
    pci: str = ""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        each = " each second" if self.each_second else ""
        return f"{self.count} {self.kind} memory errors{each} of GPU {self.pci}"


@dataclass(frozen=True, slots=True)
class TemperatureSpec:
    """A temperature in degrees Celsius."""

    celsius: int
    pci: str = ""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"{self.celsius} °C at GPU {self.pci}"


@dataclass(frozen=True, slots=True)
class ThrottleSpec:
    """Clocks that something holds down."""

    reason: str
    pci: str = ""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"clocks of GPU {self.pci} held down by {self.reason}"


@dataclass(frozen=True, slots=True)
class LostSpec:
    """A GPU that does not answer."""

    pci: str = ""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"GPU {self.pci} answers that it is lost"


@dataclass(frozen=True, slots=True)
class LinkDownSpec:
    """A port or interface that is down."""

    link: str

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"link {self.link} reads as down"


@dataclass(frozen=True, slots=True)
class LinkErrorsSpec:
    """Errors that a port or interface counts, each second."""

    link: str
    counter: str
    each_second: int

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"{self.each_second} more of {self.counter} each second on {self.link}"


@dataclass(frozen=True, slots=True)
class HangSpec:
    """A driver that does not answer."""

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return (
            "the process that talks to the NVIDIA driver is stopped; that is found after "
            "gpu_deadline_s and twice gpu_first_deadline_s"
        )


@dataclass(frozen=True, slots=True)
class SlowSpec:
    """Training processes that stand still for a share of the time."""

    ratio: float

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"training processes stand still for {self.ratio:.0%} of the time"


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """Fixed work of a pair test that is more than elsewhere."""

    ratio: float

    @property
    def phrase(self) -> str:
        """Return it as a phrase."""
        return f"the work of a pair test is {self.ratio:.0%} more here"


GpuSpec = EccSpec | TemperatureSpec | ThrottleSpec | LostSpec
LinkSpec = LinkDownSpec | LinkErrorsSpec
Spec = XidSpec | KernelSpec | GpuSpec | LinkSpec | HangSpec | SlowSpec | WorkSpec
