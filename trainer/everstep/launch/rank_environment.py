"""The environment of a training process: torchrun's, and what the SDK needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from everstep.environment import NOTHING_TO_RESTORE
from everstep_common.trainer_messages import Start


@dataclass(frozen=True, slots=True)
class JobAccess:
    """How a rank reaches the agent."""

    job: str
    socket: str
    token: str
    restarts_max: int


def rank_environment(
    base: Mapping[str, str], access: JobAccess, start: Start, local_rank: int
) -> dict[str, str]:
    """Return the environment of one rank."""
    rank = start.first_rank + local_rank
    environ = {key: value for key, value in base.items() if key != "EVERSTEP_JOB_TOKEN"}
    # A killed rank's last words must not be lost in a buffer.
    environ.setdefault("PYTHONUNBUFFERED", "1")
    if start.processes > 1:  # as torchrun: ranks on one node would fight for the processors
        environ.setdefault("OMP_NUM_THREADS", "1")
    step = NOTHING_TO_RESTORE if start.restore_step is None else str(start.restore_step)
    return environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(start.world_size),
        "LOCAL_WORLD_SIZE": str(start.processes),
        "GROUP_RANK": str(start.node_rank),
        "NODE_RANK": str(start.node_rank),
        "GROUP_WORLD_SIZE": str(start.node_count),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(start.world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": start.master_address,
        "MASTER_PORT": str(start.master_port),
        "TORCHELASTIC_RUN_ID": access.job,
        "TORCHELASTIC_RESTART_COUNT": str(max(0, start.generation - 1)),
        "TORCHELASTIC_MAX_RESTARTS": str(access.restarts_max),
        "EVERSTEP_JOB": access.job,
        "EVERSTEP_GENERATION": str(start.generation),
        "EVERSTEP_RESTORE_STEP": step,
        "EVERSTEP_SOCKET": access.socket,
        "EVERSTEP_TOKEN": access.token,
    }
