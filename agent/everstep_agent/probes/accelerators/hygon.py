"""Hygon probe: reads DCUs through the vendor's tool hy-smi.

Written for hy-smi of DTK 23.10 and 24.04 from the outputs that PaddlePaddle's documentation of
these devices shows: Hygon's own shows it as a picture only. It was not run on the hardware. The
tool's short form has no health word, no ECC counter and no threshold, and its longer forms are not
documented in text: what they would say is not guessed here.
"""

from everstep_agent.detectors.accelerators.reading import AcceleratorsReading
from everstep_agent.probes.accelerators.hygon_text import TOOL, parse_summary
from everstep_agent.probes.accelerators.tool import Tool

# Where the driver's user space and the toolkit install hy-smi.
_FOLDERS = ("/opt/hyhal/bin", "/opt/dtk/bin")


class HygonProbe:
    """Probe of Hygon DCUs; lists every DCU in one call."""

    name = TOOL

    def __init__(self, tool: Tool | None = None) -> None:
        self._tool = tool or Tool(TOOL, _FOLDERS)

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return bool(self._tool.found())

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        return parse_summary(self._tool.run())
