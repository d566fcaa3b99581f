"""How ranks died, as the admin API tells it."""

from everstep_controller.core.model.deaths import Death
from everstep_proto.generated import admin_pb2


def death_to_admin(death: Death) -> admin_pb2.RankDeath:
    """Return one death."""
    return admin_pb2.RankDeath(
        rank=death.rank,
        node=death.node,
        generation=death.generation,
        at_ns=death.at_ns,
        exit_code=death.exit_code,
        signal=death.signal,
        kind=death.kind,
        said=death.exception or death.last_line,
        core_dumped=death.core_dumped,
        core_file=death.core_file,
        step=death.step,
    )
