"""Conditions of GPUs beside their peers, and what is said where they hold."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Mode, Severity

_COMPARED = (
    "busy GPUs of one model in one job, of which 4 nodes are known, in 24 of the newest 36 samples "
    "of 5 s"
)
_SOURCE = (
    "8 %: what GPUs of one model differ by in healthy clusters, on the average of five (Sinha et "
    "al., SC 2022, arXiv 2208.11035); 6 deviations: as for all comparisons of nodes; N of M: ours"
)
_CLEARS = (
    "all GPUs of the node are within half of that in 24 of 36 samples, while a job of 4 nodes "
    "keeps them busy; while they idle it is held, and `everstep release NODE` says that it "
    "is dealt with"
)

CLOCKS = Condition(
    name="GpuClocksBelowPeers",
    component="gpus",
    meaning="the SM clock of a GPU is 8 % and 6 robust standard deviations below the median of its "
    f"peers ({_COMPARED}), and neither its power cap, an operator's setting nor idling explains it",
    source=_SOURCE,
    clears_when=_CLEARS,
    raise_after=2,
    clear_after=2,
    mode=Mode.ADVISE,
)
SET_LOW = Condition(
    name="GpuClocksSetLow",
    component="gpus",
    meaning="the SM clock of a GPU is as far below its peers as for GpuClocksBelowPeers, and it "
    "says that its clocks are set (application clocks, sync boost): somebody's wish, or forgotten",
    source="NVML's clock event reasons; limits as for GpuClocksBelowPeers",
    clears_when=_CLEARS,
    raise_after=2,
    clear_after=2,
)
BRAKE = Condition(
    name="GpuBrakedUnlikePeers",
    component="gpus",
    meaning="the power brake or a hardware slowdown holds the clocks of a GPU down, and those of "
    f"less than half of its peers ({_COMPARED})",
    source="NVML's clock event reasons; NVSentinel issue 1666: two GPUs a node held down for 36 "
    "hours, found by hand; N of M: ours",
    clears_when=_CLEARS.replace("within half of that", "free of it"),
    raise_after=2,
    clear_after=2,
    mode=Mode.ADVISE,
)
PCIE = Condition(
    name="GpuPcieBelowPeers",
    component="gpus",
    meaning="the PCIe link of a GPU has fewer lanes, or is of an older generation, than those of "
    f"its peers ({_COMPARED}), whatever it and its slot could do",
    source="the median of the peers; an agent compares with the device's own maximum, which a "
    "wrong slot or BIOS lowers as well",
    clears_when=_CLEARS.replace("within half of that", "as their peers"),
    raise_after=2,
    clear_after=2,
    mode=Mode.ADVISE,
)
DOMAIN_CLOCKS = Condition(
    name="DomainClocksLow",
    component="domain/NAME",
    meaning="GPUs of 60 % of a failure domain's nodes, of three at least, are low beside their "
    "peers elsewhere as in GpuClocksBelowPeers, at the same time: one cause, told of no node",
    source="60 % of a place: as for slow ranks; N of M: ours",
    clears_when="they are not in all but 3 of the newest 36 samples",
    raise_after=2,
    clear_after=2,
    mode=Mode.ADVISE,
)
DOMAIN_BRAKE = Condition(
    name="DomainBraked",
    component="domain/NAME",
    meaning="GPUs of 60 % of a failure domain's nodes, of three at least, are held down as in "
    "GpuBrakedUnlikePeers, at the same time: one cause, told of no node",
    source="60 % of a place: as for slow ranks; N of M: ours",
    clears_when="they are not in all but 3 of the newest 36 samples",
    raise_after=2,
    clear_after=2,
    mode=Mode.ADVISE,
)
_RULE = "the same in two of three minutes, beside GPUs of one model in one job"
# None of them explains why ranks die: what is suggested is to watch.
FAULTS = {
    CLOCKS.name: Fault(
        message="GPUs run at lower clocks than their peers in the same job",
        rule=_RULE,
    ),
    SET_LOW.name: Fault(
        message="GPUs run at lower clocks than their peers in the same job because they are set "
        "so; to let them run free: nvidia-smi -rac, nvidia-smi -rgc",
        rule=_RULE,
        severity=Severity.INFO,
    ),
    BRAKE.name: Fault(
        message="the power brake or the hardware holds GPUs down, and not their peers in the job",
        rule=_RULE,
    ),
    PCIE.name: Fault(
        message="GPUs have narrower or slower PCIe links than their peers in the same job",
        rule=_RULE,
    ),
    DOMAIN_CLOCKS.name: Fault(
        message="GPUs of most nodes of a failure domain run at low clocks together: to look at its "
        "power and cooling",
        rule=_RULE,
    ),
    DOMAIN_BRAKE.name: Fault(
        message="the power brake holds GPUs of most nodes of a failure domain down together: to "
        "look at its power supply",
        rule=_RULE,
    ),
}
