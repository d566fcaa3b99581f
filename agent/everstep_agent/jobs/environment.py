"""Environment: what of the world the jobs of a node touch, so that a test can bring its own."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from everstep_agent.vault.memory.gauges import HugePagePool, MemoryGauge, NodeMemory
from everstep_agent.vault.snapshots.descriptor_store import DescriptorStore, SystemdDescriptorStore
from everstep_common import clock
from everstep_proto.tls import TlsSettings


def _at_hand() -> str:
    return ""


def _not_away() -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What of the world the jobs of a node touch; the defaults are the real one."""

    # Descriptors that outlived the agent's restart; None asks the service manager.
    stored_fds: Mapping[str, int] | None = None
    keeper: DescriptorStore = field(default_factory=SystemdDescriptorStore)
    gauge: MemoryGauge = field(default_factory=NodeMemory)
    pool: MemoryGauge = field(default_factory=HugePagePool)
    boot_ns: Callable[[], int] = clock.boot_ns
    jitter: random.Random | None = None
    # What this node shows to others, and expects of them.
    tls: TlsSettings = field(default_factory=TlsSettings)
    # Why the controller is not there, and what happens then; "" while it is.
    controller_away: Callable[[], str] = _at_hand
    # For how many seconds that has been so; 0 while it is there.
    controller_away_s: Callable[[], float] = _not_away
