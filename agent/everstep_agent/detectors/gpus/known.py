"""Missing GPUs: a GPU that was seen before and that the driver no longer lists counts as lost."""

from everstep_agent.detectors.gpus.judging import judge
from everstep_agent.detectors.gpus.presence import LOST, RESET_DEMANDED
from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_common.judging.judgement import Judgement


class KnownGpus:
    """GPUs that this agent has seen."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def judge(self, reading: GpusReading) -> list[Judgement]:
        """Judge one complete poll; a driver that lists none at all is another condition's."""
        if not reading.gpus:
            return []
        named = [gpu for gpu in reading.gpus if gpu.uuid]
        self._known.update(gpu.component for gpu in named)
        missing = sorted(self._known - {gpu.component for gpu in named})
        judgements = [
            judge(component, LOST, True, "the driver does not list it any more")
            for component in missing
        ]
        # A GPU that was lost before its PCI address was known was reported under its index.
        judgements += [
            judge(f"gpu/index-{gpu.index}", fault, False, f"it is GPU {gpu.pci}")
            for gpu in named
            for fault in (LOST, RESET_DEMANDED)
        ]
        return judgements
