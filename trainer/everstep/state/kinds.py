"""Object kinds of a state's parts: module, optimizer or other; torch only if the script has it."""

import sys
from collections.abc import Collection, Container, Mapping

from everstep.copy_engine.views import StateError
from everstep.state.objects import NO_REPLICA, Object, Stateful, any_object
from everstep.state.parts import Place


def objects_of(
    stateful: Mapping[str, Stateful],
    equal: Container[str],
    place: Place,
    replicas: Collection[Stateful] = (),
) -> list[Object]:
    """Return the objects by their kind; modules name the parameters of the optimizers.

    ``replicas`` are torch's DistributedDataParallel around modules of the state. Raises StateError.
    """
    if "torch" not in sys.modules:
        if replicas:
            raise StateError(NO_REPLICA)
        return [any_object(name, thing, name in equal) for name, thing in stateful.items()]
    from everstep.state.modules import Modules, replicas_among  # torch is there

    modules = Modules.among(stateful, place, replicas_among(replicas))
    return [modules.object_of(name, thing, name in equal) for name, thing in stateful.items()]
