"""Every condition that the agent can find, each defined beside the detector that judges it."""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_agent.detectors import agent, gpu, host, kernel, links
from everstep_agent.detectors.condition import Condition

_GROUPS: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    ("NVIDIA GPUs", gpu.CONDITIONS),
    ("Kernel log", kernel.CONDITIONS),
    ("Links", links.CONDITIONS),
    ("Host", host.CONDITIONS),
    ("The agent itself", agent.CONDITIONS),
)

# For the reference: the groups in the order in which they are shown.
GROUPS: Mapping[str, tuple[Condition, ...]] = MappingProxyType(dict(_GROUPS))

CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {condition.name: condition for _, group in _GROUPS for condition in group}
)
