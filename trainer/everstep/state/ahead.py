"""Size forecast: the bytes of a state of objects once its optimizers have made a first step."""

from collections.abc import Iterable

from everstep.copy_engine.views import ALIGNMENT_BYTES
from everstep.state import tree
from everstep.state.leaves import Collector
from everstep.state.objects import Object
from everstep.state.parts import Part, Place, to_save


def bytes_ahead(objects: Iterable[Object], place: Place) -> int | None:
    """Return how much of it this process will save; None where an object's growth is not known.

    Raises StateError.
    """
    parts: list[Part] = []
    total = 0
    for thing in objects:
        state = thing.state_ahead()
        if state is None:
            return None
        collector = Collector(place, thing.equal)
        total += aligned(len(tree.write(state, thing.path, collector)))
        # What stands in for the parts to come is one memory; they will be several.
        parts += [leaf.part for leaf in collector.leaves.values()]
    return total + sum(aligned(part.size_bytes) for part in to_save(parts))


def aligned(size_bytes: int) -> int:
    """Return how much of a slot a shard takes."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
