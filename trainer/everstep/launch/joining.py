"""Join message: the launcher's request to take part in a job, sent at each connection."""

from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.generation import LocalGeneration
from everstep_common.trainer_messages import Join
from everstep_common.version import TRAINER_PROTOCOL, VERSION


def join_message(
    options: LaunchOptions, token: str, generation: LocalGeneration, job_id: str
) -> Join:
    """Return the message, with what runs here now."""
    return Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=options.job,
        token=token,
        nodes_min=options.nodes_min,
        nodes_max=options.nodes_max,
        processes_per_node=options.processes_per_node,
        reform=options.reform,
        restarts_max=options.restarts_max,
        free_port=generation.free_port,
        running_generation=0 if generation.stopped else generation.number,
        storage=options.keep.storage,
        environment=options.keep.environment,
        snapshot_bytes=options.keep.memory_bytes,
        snapshot_every_min=options.keep.every_min,
        snapshot_every_max=options.keep.every_max,
        # Said once: what has begun here is not left again because the agent was away.
        fresh=options.keep.fresh and not generation.number,
        job_id=job_id,
        learns=True,
        replica_nodes=options.replica_nodes,
        program=options.program,
    )
