"""Group configuration: the tables ``[groups.NAME]``, with node lists as Slurm writes them."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from everstep_common.node_lists import NodeListError, expand
from everstep_controller.core.model.groups import Group
from everstep_controller.drivers.drivers import DriversConfig

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
# More than any site has; each is looked at where a node's mode is explained.
_GROUPS_MAX = 256


def expanded_groups(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return groups with the single names of their nodes. Raises NodeListError."""
    return {name: replace(group, nodes=_names(group.nodes)) for name, group in groups.items()}


def group_problems(groups: Mapping[str, Group], drivers: DriversConfig) -> Iterator[str]:
    """Yield all that is wrong with groups, each with its key."""
    if len(groups) > _GROUPS_MAX:
        yield f"groups: {len(groups)} are more than {_GROUPS_MAX}"
    configured = drivers.configured()
    for name, group in groups.items():
        if not _NAME.fullmatch(name):
            yield f"groups.{name}: expected a name of letters, digits, '_', '.' and '-'"
        for problem in (*group.problems(), *_list_problems(group)):
            yield f"groups.{name}.{problem}"
        for driver in group.drivers or ():
            if driver not in configured:
                yield f"groups.{name}.drivers: {_unknown_driver(driver, drivers, configured)}"


def _list_problems(group: Group) -> Iterator[str]:
    for text in group.nodes:
        try:
            expand(text)
        except NodeListError as error:
            yield f"nodes: {error}"


def _unknown_driver(driver: str, drivers: DriversConfig, configured: set[str]) -> str:
    if driver in drivers.parts:
        return f"{driver} is not configured; see [drivers.{driver}]"
    near = difflib.get_close_matches(driver, drivers.parts, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(drivers.parts))}"
    return (
        f"no driver is named {driver!r}; {hint}"
        if configured
        else (f"no driver is named {driver!r}, and none is configured; {hint}")
    )


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that several lists name, each once."""
    return tuple(dict.fromkeys(name for text in texts for name in expand(text)))
