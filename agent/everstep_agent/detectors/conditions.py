"""Condition catalogue: every condition an agent can find, collected from all of its detectors."""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_agent.detectors import (
    agent,
    certificate,
    kernel,
    persistence,
    snapshot_skips,
    transfer_refusals,
    user_limits,
)
from everstep_agent.detectors.accelerators import reading as accelerators
from everstep_agent.detectors.gpus import clocks as gpu_clocks
from everstep_agent.detectors.gpus import fabric as gpu_fabric
from everstep_agent.detectors.gpus import fleet as gpu_fleet
from everstep_agent.detectors.gpus import memory as gpu_memory
from everstep_agent.detectors.gpus import nvlink
from everstep_agent.detectors.gpus import pcie as gpu_pcie
from everstep_agent.detectors.gpus import presence as gpu
from everstep_agent.detectors.gpus import processes as gpu_processes
from everstep_agent.detectors.gpus import recovery as gpu_recovery
from everstep_agent.detectors.gpus import release as gpu_release
from everstep_agent.detectors.gpus import vanished as gpu_vanished
from everstep_agent.detectors.host import clock as host_clock
from everstep_agent.detectors.host import cpu as host_cpu
from everstep_agent.detectors.host import disks as host_disks
from everstep_agent.detectors.host import edac as host_edac
from everstep_agent.detectors.host import mounts as host_mounts
from everstep_agent.detectors.host import services, unkillable_ranks
from everstep_agent.detectors.host import tasks as host_tasks
from everstep_agent.detectors.host import usage as host
from everstep_agent.detectors.inventory import detector as inventory
from everstep_agent.detectors.kernel.logs import pstore
from everstep_agent.detectors.links import bonds, ethernet, hca, infiniband
from everstep_agent.detectors.links import detector as links
from everstep_agent.detectors.links import errors as link_errors
from everstep_common.judging.condition import Condition

_GROUPS: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    (
        "NVIDIA GPUs",
        (
            *gpu.CONDITIONS,
            *gpu_recovery.CONDITIONS,
            *gpu_processes.CONDITIONS,
            *gpu_release.CONDITIONS,
            *gpu_fleet.CONDITIONS,
            *gpu_vanished.CONDITIONS,
        ),
    ),
    ("GPU memory", gpu_memory.CONDITIONS),
    ("GPU clocks and heat", gpu_clocks.CONDITIONS),
    ("GPU links", (*gpu_pcie.CONDITIONS, *nvlink.CONDITIONS, *gpu_fabric.CONDITIONS)),
    ("Kernel log", (*kernel.CONDITIONS, *pstore.CONDITIONS)),
    ("Links", (*links.CONDITIONS, *link_errors.CONDITIONS)),
    ("InfiniBand and RoCE", (*infiniband.CONDITIONS, *hca.CONDITIONS)),
    ("Ethernet and bonds", (*ethernet.CONDITIONS, *bonds.CONDITIONS)),
    ("Other accelerators", accelerators.CONDITIONS),
    ("Host", (*host.CONDITIONS, *host_clock.CONDITIONS, *host_cpu.CONDITIONS)),
    ("Memory modules", host_edac.CONDITIONS),
    ("Processes", host_tasks.CONDITIONS),
    ("Disks and file systems", (*host_disks.CONDITIONS, *host_mounts.CONDITIONS)),
    ("Services", services.CONDITIONS),
    ("Expected inventory", inventory.CONDITIONS),
    (
        "Jobs",
        (
            *snapshot_skips.CONDITIONS,
            *unkillable_ranks.CONDITIONS,
            *persistence.CONDITIONS,
            *transfer_refusals.CONDITIONS,
        ),
    ),
    ("The agent itself", (*agent.CONDITIONS, *certificate.CONDITIONS, *user_limits.CONDITIONS)),
)

# For the reference: the groups in the order in which they are shown.
GROUPS: Mapping[str, tuple[Condition, ...]] = MappingProxyType(dict(_GROUPS))

CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {condition.name: condition for _, group in _GROUPS for condition in group}
)
