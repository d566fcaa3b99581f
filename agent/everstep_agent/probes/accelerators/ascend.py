"""Huawei Ascend probe: reads NPUs through the vendor's tool npu-smi.

Written for npu-smi 23.0 to 25.5 from Huawei's documentation; it was not run on the hardware.
"""

from dataclasses import replace

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.ascend_text import (
    TOOL,
    Chip,
    Ecc,
    parse_ecc,
    parse_health,
    parse_info,
)
from everstep_agent.probes.accelerators.text import UnreadableOutputError
from everstep_agent.probes.accelerators.tool import Tool
from everstep_agent.probes.accelerators.vendors import NPU_SMI

_HEALTHY = ("", "OK", "UNKNOWN")


class AscendProbe:
    """Probe of Huawei Ascend NPUs; lists every chip in one call.

    The memory errors of one NPU are asked for at each look: a call per NPU takes a second or more,
    and errors are counted over minutes.
    """

    name = TOOL

    def __init__(self, tool: Tool | None = None) -> None:
        self._tool = tool or Tool(*NPU_SMI)
        self._ecc: dict[tuple[int, int], Ecc] = {}
        self._turn = 0
        # Why the tool gives no ECC counts: not every product has them, and a container may not ask.
        self._refusal = ""

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return bool(self._tool.found())

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        reading, chips = parse_info(self._tool.run("info"))
        if chips and not self._refusal:
            self._ask_for_errors(chips)
        devices = tuple(self._complete(chip) for chip in chips)
        blind = f"memory errors: {self._refusal}" if self._refusal else ""
        return replace(reading, devices=devices, blind=blind)

    def _ask_for_errors(self, chips: tuple[Chip, ...]) -> None:
        npus = sorted({chip.npu for chip in chips})
        npu = npus[self._turn % len(npus)]
        self._turn += 1
        of_it = [chip for chip in chips if chip.npu == npu]
        for chip in of_it:
            # With one chip the shorter form, which is the one documented for training cards.
            which = () if len(of_it) == 1 else ("-c", str(chip.chip))
            try:
                text = self._tool.run("info", "-t", "ecc", "-i", str(npu), *which)
                self._ecc[npu, chip.chip] = parse_ecc(text)
            except (OSError, UnreadableOutputError) as error:
                # A chip that gave a count before will again; until then its last count stands.
                self._refusal = "" if self._ecc else str(error)

    def _complete(self, chip: Chip) -> AcceleratorReading:
        reading = chip.reading
        if ecc := self._ecc.get((chip.npu, chip.chip)):
            reading = replace(reading, ecc_corrected=ecc.corrected, ecc_uncorrected=ecc.uncorrected)
        if reading.health.upper() not in _HEALTHY:
            reading = replace(reading, health_detail=self._detail(chip))
        return reading

    def _detail(self, chip: Chip) -> str:
        place = ("-i", str(chip.npu), "-c", str(chip.chip))
        try:
            return parse_health(self._tool.run("info", "-t", "health", *place))
        except OSError as error:
            return str(error)
