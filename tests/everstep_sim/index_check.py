"""Index check: what the core keeps in its index is what all of its records say."""

from everstep_controller.core.model.state import State

# Up to so many nodes it is compared after every event, and where there are more, so seldom.
_NODES_MAX, _EVERY = 64, 200


def check_index(state: State, event: object, number: int) -> None:
    """Compare an index with one computed anew, after the event of a number. Raises AssertionError.

    Where nodes are many that takes longer than the event itself, so not each time.
    """
    if len(state.nodes) > _NODES_MAX and number % _EVERY:
        return
    fresh = state.compute_index()
    if state.index != fresh:
        raise AssertionError(f"{event} leaves the index other than the records: {differing(state)}")


def differing(state: State) -> str:
    """Return what differs between an index and one computed anew, by the names of its fields."""
    fresh, kept = state.compute_index(), state.index
    found = [
        f"{name} is {getattr(kept, name)} and not {getattr(fresh, name)}"
        for name in type(kept).__slots__
        if getattr(kept, name) != getattr(fresh, name)
    ]
    return "; ".join(found)
