"""Empty shard of a rank that saves nothing: a step is whole when every rank has a copy."""

from everstep.copy_engine.views import ShardView
from everstep.state.memory.arrays import buffer_view
from everstep_common.shard_names import owner, private_name

# Path that no part of a state can have, and that no restore asks for.
_PATH = "#nothing"


def nothing_of(rank: int) -> ShardView:
    """Return the shard of a rank that has none.

    It is the rank's own: were all of these one part of the state, a rank that fails to save what
    it has could be taken for one that has nothing.
    """
    return buffer_view(private_name(rank, _PATH), bytearray(1))


def is_nothing(name: str) -> bool:
    """Return whether a shard only says that a rank had none."""
    return owner(name)[1] == _PATH
