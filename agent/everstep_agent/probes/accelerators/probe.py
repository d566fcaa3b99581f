"""Accelerator probe interface: the two calls that every vendor's probe offers."""

from typing import Protocol

from everstep_agent.detectors.accelerators.reading import AcceleratorsReading


class AcceleratorProbe(Protocol):
    """Probe of one vendor's devices. Both calls block: they belong on a thread."""

    @property
    def name(self) -> str:
        """Name the tool, for findings and metrics."""
        ...

    def present(self) -> bool:
        """Return whether there is anything to read here; cheap, and true without any device."""
        ...

    def read(self) -> AcceleratorsReading:
        """Read once. Raises OSError (TimeoutError: it hangs) and UnreadableOutputError."""
        ...
