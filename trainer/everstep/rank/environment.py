"""Environment of a training process: the variables by which the launcher tells it about its job."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

# EVERSTEP_RESTORE_STEP of a generation that starts from the beginning.
NOTHING_TO_RESTORE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The place of this process in a generation of a job."""

    job: str
    generation: int
    rank: int
    socket: str
    token: str
    starts_fresh: bool
    # Folder of --persist, to which a rank without an agent writes; "": there is none.
    persist: str = ""
    # The log of an agent that runs for this job alone; "": it runs for the node.
    agent_log: str = ""


def membership(environ: Mapping[str, str] = os.environ) -> Membership | None:
    """Return this process's place in its job, or None outside a job.

    EVERSTEP_SOCKET alone is no job: a user may have set it for the launcher.
    """
    socket = environ.get("EVERSTEP_SOCKET")
    generation = environ.get("EVERSTEP_GENERATION")
    if not socket or not generation:
        return None
    return Membership(
        job=environ.get("EVERSTEP_JOB", ""),
        generation=int(generation),
        rank=rank(environ),
        socket=socket,
        token=environ.get("EVERSTEP_TOKEN", ""),
        starts_fresh=environ.get("EVERSTEP_RESTORE_STEP") == NOTHING_TO_RESTORE,
        persist=environ.get("EVERSTEP_PERSIST", ""),
        agent_log=environ.get("EVERSTEP_AGENT_LOG", ""),
    )


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank, 0 for a process on its own."""
    return int(environ.get("RANK", "0"))


def world_size(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many processes train together, 1 for a process on its own."""
    return int(environ.get("WORLD_SIZE", "1"))


def world_size_wanted(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many would train together at the job's full size; outside a job, those that do."""
    return int(environ.get("EVERSTEP_WORLD_SIZE_WANTED", "0")) or world_size(environ)


def local_world_size(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many of them share this node."""
    return int(environ.get("LOCAL_WORLD_SIZE", "1"))
