"""Signal groups: what a caller of a health check may ask for, and the group of each finding."""

import difflib
from collections.abc import Iterable, Mapping

from everstep_agent.detectors.conditions import GROUPS as TITLED
from everstep_common.judging.findings import FindingKey

GROUPS = (
    "gpu",
    "ib",
    "net",
    "kernel",
    "host",
    "disk",
    "services",
    "accelerators",
    "inventory",
)

# The group of a component, by the first part of its name ("gpu" of "gpu/0000:3b:00.0").
_BY_COMPONENT = {
    "gpu": "gpu",
    "driver": "gpu",
    "nvlink": "gpu",
    "nvswitch": "gpu",
    "fabric": "gpu",
    "disk": "disk",
    "mount": "disk",
    "nfs": "disk",
    "service": "services",
    "accelerator": "accelerators",
    "accelerators": "accelerators",
}
# The group of a condition, by its title in docs/signals.md: kernel lines and the expected inventory
# concern all kinds of components.
_BY_TITLE = {"kernel": "kernel", "inventory": "inventory"}
# Conditions that a GPU's own probe finds, and that whoever asks for the inventory wants as well.
_MISSING = frozenset({"GpuCountMismatch", "GpuLost"})
# Further groups of sources to read for a group: the kernel log, for instance, concerns most.
_SOURCES = {
    "gpu": {"kernel"},
    "ib": {"net", "kernel"},
    "net": {"ib", "kernel"},
    "disk": {"host", "kernel"},
    "host": {"kernel"},
    "accelerators": {"kernel"},
    "inventory": set(GROUPS),
}


def groups_of(key: FindingKey, probes: Mapping[str, str]) -> frozenset[str]:
    """Return the groups of what was judged; ``probes`` maps the name of a source to its group."""
    kind, _, name = key.component.partition("/")
    if kind == "probe":
        return frozenset({probes.get(name, "host")})
    rdma = "/" in name or name in ("infiniband", "roce")
    link = "ib" if rdma else "net"
    found = link if kind in ("link", "links") else _BY_COMPONENT.get(kind, "host")
    expected = {"inventory"} if key.condition in _MISSING else set()
    # A condition with no title is of a site's own rules, which are about kernel lines.
    return _TITLE_OF.get(key.condition, frozenset({"kernel"})) | {found} | expected


def sources_for(groups: Iterable[str]) -> frozenset[str]:
    """Return the groups of sources that are looked at for these groups; nothing means all."""
    wanted = frozenset(groups)
    return wanted.union(*(_SOURCES.get(group, set()) for group in wanted))


def problems_of(groups: Iterable[str]) -> list[str]:
    """Say which of these are no groups, in the caller's words."""
    return [_unknown(group) for group in groups if group not in GROUPS]


def _unknown(group: str) -> str:
    near = difflib.get_close_matches(group, GROUPS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"no group {group!r}; {hint}known: {', '.join(GROUPS)}"


def _titled() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for title, conditions in TITLED.items():
        groups = frozenset(group for word, group in _BY_TITLE.items() if word in title.lower())
        found |= {condition.name: groups for condition in conditions}
    return found


_TITLE_OF = _titled()
