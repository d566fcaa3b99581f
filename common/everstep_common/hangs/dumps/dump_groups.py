"""Dump groups: the process groups of a dump, and how many operations each has counted. Pure."""

import re

from everstep_common.hangs.dumps.coalesced import WorkCounts
from everstep_common.hangs.dumps.dump_entries import number_in, text_in
from everstep_common.hangs.dumps.dump_values import DumpError
from everstep_common.quantities import RANKS_MAX

# A rank of the largest jobs is in some hundred groups, which have a million members together.
_CONFIGURED_MAX = 20_000
_MEMBERS_MAX = 4_000_000
_NUMBERS = re.compile(r"\d{1,7}")
DEFAULT_GROUP = "default_pg"
# Description and members, in the order of their ranks in the group.
GroupKey = tuple[str, tuple[int, ...]]


def configured_groups(value: object, world_size: int) -> dict[str, GroupKey]:
    """Return description and members of each group, by its name."""
    if not isinstance(value, dict):
        return {}
    if len(value) > _CONFIGURED_MAX:
        raise DumpError(f"it has {len(value):,} groups, more than {_CONFIGURED_MAX:,}")
    found, left = {}, _MEMBERS_MAX
    for name, one in value.items():
        if isinstance(one, dict):
            # gloo's default group has neither a name nor a description there.
            description = text_in(one.get("desc")) or (str(name) if name else DEFAULT_GROUP)
            members = _members(one.get("ranks"))
            if not members and description == DEFAULT_GROUP:
                members = tuple(range(world_size))
            if members:
                found[str(name)] = (description, members)
            left -= len(members)
            if left < 0:
                raise DumpError(f"its groups have more than {_MEMBERS_MAX:,} members")
    return found


def _members(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        # 200,000 ranks take seven characters each, with their commas.
        numbers = [int(one) for one in _NUMBERS.findall(value[: 9 * RANKS_MAX])]
    elif isinstance(value, list | tuple):
        numbers = [one for one in value[:RANKS_MAX] if type(one) is int]
    else:
        return ()
    if len(set(numbers)) != len(numbers) or not all(0 <= one < RANKS_MAX for one in numbers):
        raise DumpError("the members of a group are no ranks")
    return tuple(numbers)


def creation_order(name: str) -> tuple[int, int, str]:
    """Return a key that sorts names of groups as the process made them."""
    # torch numbers groups as they are made; '' is the first.
    if not name:
        return (0, -1, "")
    is_number = name.isascii() and name.isdigit() and len(name) < 10
    return (0, int(name), "") if is_number else (1, 0, name)


def work_counts(value: object) -> dict[int, WorkCounts]:
    """Return how many operations each group has counted, by its number in the process."""
    if not isinstance(value, dict):
        return {}
    found = {}
    for number, one in value.items():
        key = number_in(number)
        if key is not None and isinstance(one, dict):
            enqueued = number_in(one.get("last_enqueued_collective"))
            completed = number_in(one.get("last_completed_collective"))
            if enqueued is not None and completed is not None:
                found[key] = WorkCounts(max(0, enqueued), max(0, completed))
    return found
