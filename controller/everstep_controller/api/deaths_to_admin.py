"""Deaths of ranks as messages of the admin API."""

from everstep_controller.core.model.incident import Death
from everstep_proto.generated import admin_pb2


def death_to_admin(death: Death) -> admin_pb2.RankDeath:
    """Return one death."""
    return admin_pb2.RankDeath(
        rank=death.exit.rank,
        node=death.node,
        generation=death.exit.generation,
        at_ns=death.at_ns,
        exit_code=death.exit.exit_code,
        signal=death.exit.signal,
        kind=death.exit.kind,
        said=death.exit.exception or death.exit.last_line,
        core_dumped=death.exit.core_dumped,
        core_file=death.exit.core_file,
        step=death.exit.step,
    )
