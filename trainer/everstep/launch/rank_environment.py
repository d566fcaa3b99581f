"""Environment of a rank: the variables that torchrun sets, and those that the SDK needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from everstep.rank.environment import NOTHING_TO_RESTORE
from everstep_common.launcher_messages import Start

# torchrun's own variable for what stands before each line on the terminal.
_PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
_LOCAL_RANK = "${local_rank}"


@dataclass(frozen=True, slots=True)
class JobAccess:
    """Access of a rank to the agent, and facts of its job."""

    job: str
    socket: str
    token: str
    restarts_max: int
    # Processes of the job at its full size.
    world_size_wanted: int
    role: str = "default"
    # Folder of --persist; "": there is none, or it is a bucket.
    persist: str = ""
    # The log of an agent that runs for this job alone; "": it runs for the node.
    agent_log: str = ""


def rank_environment(
    base: Mapping[str, str], access: JobAccess, start: Start, local_rank: int
) -> dict[str, str]:
    """Return the environment of one rank."""
    rank = start.first_rank + local_rank
    environ = lasting_environment(base, local_rank, start.processes)
    return environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(start.world_size),
        "GROUP_RANK": str(start.node_rank),
        "NODE_RANK": str(start.node_rank),
        "GROUP_WORLD_SIZE": str(start.node_count),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(start.world_size),
        "ROLE_NAME": access.role,
        "MASTER_ADDR": start.master_address,
        "MASTER_PORT": str(start.master_port),
        "TORCHELASTIC_RUN_ID": access.job,
        "TORCHELASTIC_RESTART_COUNT": str(max(0, start.generation - 1)),
        "TORCHELASTIC_MAX_RESTARTS": str(access.restarts_max),
        # Rank 0 makes the store; torchrun's launcher would have it made already.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        **job_environment(access, start),
    }


def job_environment(access: JobAccess, start: Start) -> dict[str, str]:
    """Return what the SDK needs, whoever starts the rank."""
    step = NOTHING_TO_RESTORE if start.restore_step is None else str(start.restore_step)
    return {
        "EVERSTEP_JOB": access.job,
        "EVERSTEP_GENERATION": str(start.generation),
        "EVERSTEP_RESTORE_STEP": step,
        "EVERSTEP_WORLD_SIZE_WANTED": str(access.world_size_wanted),
        "EVERSTEP_SOCKET": access.socket,
        "EVERSTEP_TOKEN": access.token,
        "EVERSTEP_PERSIST": access.persist,
        "EVERSTEP_AGENT_LOG": access.agent_log,
    }


def lasting_environment(base: Mapping[str, str], local_rank: int, processes: int) -> dict[str, str]:
    """Return what is the same for a local rank in every generation."""
    environ = {key: value for key, value in base.items() if key != "EVERSTEP_JOB_TOKEN"}
    # A killed rank's last words must not be lost in a buffer.
    environ.setdefault("PYTHONUNBUFFERED", "1")
    # As torchrun: an error of a collective ends the rank instead of leaving it hanging.
    environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if processes > 1:  # as torchrun: ranks on one node would fight for the processors
        environ.setdefault("OMP_NUM_THREADS", "1")
    return environ | {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(processes)}


def alone_with_device(base: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """Return what makes a rank believe that its GPU is the only one, as torchrun does."""
    visible = base.get("CUDA_VISIBLE_DEVICES")
    own = str(local_rank)
    if visible is not None:
        own = visible.split(",")[local_rank].strip() if visible else ""
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": own}


def rank_command(command: tuple[str, ...], local_rank: int) -> tuple[str, ...]:
    """Return the command of one rank; ``${local_rank}`` in it is the rank's, as with torchrun."""
    return tuple(word.replace(_LOCAL_RANK, str(local_rank)) for word in command)


def line_prefix(environ: Mapping[str, str], role: str, rank: int, local_rank: int) -> str:
    """Return what stands before each line of a rank on the terminal."""
    template = environ.get(_PREFIX_TEMPLATE)
    if template is None:
        return f"[{rank}] "
    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank)
