"""Member tree: which member of a job hears which, by their indexes. Pure.

Part of the protocol: the controller names to each the address of its collector, and an agent knows
by it whose words it waits for.
"""

# How many members tell one their words: 2,048 members are three stages deep.
CHILDREN_MAX = 16


def collector_of(number: int) -> int | None:
    """Return the member that a member tells its words; None for the first one."""
    return (number - 1) // CHILDREN_MAX if number > 0 else None


def told_to(number: int, count: int) -> range:
    """Return the members that tell this one their words, of so many in all."""
    first = number * CHILDREN_MAX + 1
    return range(min(first, count), min(first + CHILDREN_MAX, count))
