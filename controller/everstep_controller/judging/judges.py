"""List of the controller's judges; a new one is a file beside this one and a line here."""

from everstep_controller.judging.clock_skew import ClockSkewJudge
from everstep_controller.judging.gpu_peers import GpuPeersJudge
from everstep_controller.judging.judge import Judge
from everstep_controller.judging.link_peers import LinkPeersJudge
from everstep_controller.judging.sample_stream import SampleStreamJudge

JUDGES: tuple[Judge, ...] = (
    ClockSkewJudge(),
    SampleStreamJudge(),
    GpuPeersJudge(),
    LinkPeersJudge(),
)
