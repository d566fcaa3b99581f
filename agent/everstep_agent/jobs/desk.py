"""What every job on the node needs of the agent around it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.jobs.facts import JobStore
from everstep_agent.jobs.settings import JobsSettings
from everstep_agent.outlet import Outlet
from everstep_agent.vault.job_vault import Spawn
from everstep_agent.vault.site import Site


@dataclass(frozen=True, slots=True)
class Desk:
    """The agent, as a job sees it. ``boot_ns`` is CLOCK_BOOTTIME."""

    settings: JobsSettings
    outlet: Outlet
    site: Site
    store: JobStore
    spawn: Spawn
    boot_ns: Callable[[], int]
    jitter: random.Random
