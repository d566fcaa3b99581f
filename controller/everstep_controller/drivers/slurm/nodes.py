"""Slurm's nodes, as sinfo and scontrol print them, and which of them somebody withholds. Pure.

The fields of sinfo are separated by a word that nobody can guess, so that no reason, whatever is
in it, ends a field or begins a node. The states are those of Slurm 22.05 to 26.05.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from everstep_controller.core.model.isolation import Hold
from everstep_controller.drivers.port import DriverError, SchedulerNode
from everstep_controller.drivers.slurm.reasons import NOT_RESPONDING, is_ours, own_part

# Fields of `sinfo -O`; the reason is last, for people read it so. sinfo tells nodes together that
# have all of them the same: with -N it compares every node with every other one, and takes 3.8 s of
# processor time for 12,500 (22.05), without it 0.05 s. No two nodes have the same address.
SINFO_FIELDS = ("NodeList", "StateComplete", "Partition", "Features", "Comment", "Extra", "Reason")
ADDRESSED_FIELDS = (SINFO_FIELDS[0], "NodeHost", "NodeAddr", *SINFO_FIELDS[1:])
_SHOWN_NAME = re.compile(r"NodeName=(\S+) ")
_SHOWN_STATE = re.compile(r" State=([A-Z?+*_^@$#~!%-]+) ")
_SHOWN_REASON = re.compile(r" Reason=(.*) \[[^\[\]@ ]+@[0-9T:-]+\]")
_LISTED = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_NO_LIST = "{text!r} of sinfo is no list of nodes; type 'sinfo' where the controller runs"
_SHOWN_MAX = 80
# No cluster has ten million nodes; a range of more digits would fill the memory.
_DIGITS_MAX = 7
_NOTHING = frozenset({"none", "(null)", "n/a", "N/A"})

# What keeps work off a node, and what is said of it where it has no reason. In no other state does
# somebody withhold it: RESERVED, PLANNED and BLOCKED are Slurm's own plans; a node that is powered
# down is powered up for work; REBOOT_REQUESTED waits for the end of jobs; UNKNOWN and
# NOT_RESPONDING pass; CLOUD, EXTERNAL, DYNAMIC_* and FUTURE tell where it comes from.
_WITHHOLDS: Mapping[str, str] = MappingProxyType(
    {
        "DRAIN": "drained, and no reason given",
        "FAIL": "state FAIL, and no reason given",
        "INVALID_REG": "its slurmd registers with less than slurm.conf says",
        "REBOOT_ISSUED": "it is being rebooted by Slurm",
    }
)
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm has it; ``states`` are its base state and flags, in capitals."""

    name: str
    host: str
    address: str
    states: frozenset[str]
    shown_state: str
    partitions: tuple[str, ...]
    features: str
    comment: str
    extra: str
    reason: str

    @property
    def is_down(self) -> bool:
        """Whether Slurm has given it up, or somebody has set it DOWN."""
        return "DOWN" in self.states

    @property
    def is_silent(self) -> bool:
        """Whether it does not answer slurmctld, or did not when slurmctld gave it up."""
        return "NOT_RESPONDING" in self.states or self.reason.endswith(NOT_RESPONDING)

    @property
    def is_busy(self) -> bool:
        """Whether jobs are on it."""
        return bool(self.states & _BUSY)

    def hold(self, cluster_id: str) -> Hold | None:
        """Return who keeps work off it; None for nobody."""
        # A node in FAIL is somebody's; Slurm refuses to undrain one that registered wrongly.
        alone = "DRAIN" in self.states and self.states.isdisjoint(("FAIL", "INVALID_REG"))
        if alone and is_ours(self.reason, cluster_id):
            return Hold(self.reason, ours=True)
        said = next((_WITHHOLDS[flag] for flag in _WITHHOLDS if flag in self.states), "")
        if said:
            return Hold(self.reason or said, ours=False)
        if self.is_down and not self._is_only_silent(cluster_id):
            return Hold(f"DOWN: {self.reason or 'no reason given'}", ours=False)
        # Jobs of its reservation may run on a node in maintenance: Slurm lets nobody else in.
        if "MAINTENANCE" in self.states and not self.is_busy:
            return Hold("a reservation for maintenance", ours=False)
        return None

    def lost(self) -> str:
        """Return what Slurm says of a node that it has lost sight of; empty for any other."""
        if self.is_down and "NOT_RESPONDING" in self.states:
            return f"{self.shown_state}: {self.reason or 'no reason given'}"
        return ""

    def told(self, work: Sequence[str] = ()) -> SchedulerNode:
        """Return what people are told of it."""
        # sinfo tells them in an order that depends on states of other nodes.
        labels = {"partition": ",".join(sorted(self.partitions)), "feature": self.features}
        return SchedulerNode(self.shown_state, tuple(work), {k: v for k, v in labels.items() if v})

    def _is_only_silent(self, cluster_id: str) -> bool:
        """Return whether it is down because it does not answer: nobody has decided that."""
        silent = self.reason in ("", NOT_RESPONDING) or is_ours(self.reason, cluster_id)
        return silent and "NOT_RESPONDING" in self.states

    def has_reason(self, reason: str) -> bool:
        """Return whether it is drained for one of our reasons, whatever slurmctld appended."""
        return own_part(self.reason) == reason


def decode_sinfo(
    text: str, separator: str, fields: Sequence[str] = SINFO_FIELDS
) -> Iterator[SlurmNode]:
    """Yield the nodes of ``sinfo -h -O``; one of two partitions comes again, with both.

    Raises DriverError for what is not whole.
    """
    *told, end = text.split(separator)
    if len(told) % len(fields) or end.strip():
        raise DriverError(
            f"sinfo's answer is cut short or is not one: {len(told)} fields for nodes of "
            f"{len(fields)}; type 'sinfo' where the controller runs"
        )
    partitions: dict[str, tuple[str, ...]] = {}
    for at in range(0, len(told), len(fields)):
        said = dict(zip(fields, told[at : at + len(fields)], strict=True))
        one = _node(said)  # what it has in common with the others is there once
        (partition,) = one.partitions
        for name in listed_names(said["NodeList"].strip()):
            before = partitions.get(name, ())
            known = before if partition in before else (*before, partition)
            partitions[name] = known if before else one.partitions
            yield replace(one, name=name, partitions=partitions[name])


def _node(said: Mapping[str, str]) -> SlurmNode:
    """Return what is said of one or several nodes, without a name."""
    state = said["StateComplete"].upper()
    return SlurmNode(
        name="",
        host=said.get("NodeHost", ""),
        address=said.get("NodeAddr", ""),
        states=frozenset(state.split("+")),
        shown_state=state,
        partitions=(said["Partition"].rstrip("*"),),
        features=_plain(said["Features"]),
        comment=_plain(said["Comment"]),
        extra=_plain(said["Extra"]),
        reason=_plain(said["Reason"]),
    )


def _plain(field: str) -> str:
    return "" if field in _NOTHING else field


def listed_names(text: str) -> Iterator[str]:
    """Yield the names of a list as Slurm prints it: ``n[01-16,20],m1``. Raises DriverError."""
    parts = list(_LISTED.finditer(text))
    if ",".join(part[0] for part in parts) != text:
        raise DriverError(_NO_LIST.format(text=text[:_SHOWN_MAX]))
    for part in parts:
        yield from _unfolded(part[0])


def _unfolded(part: str) -> Iterator[str]:
    head, fold, rest = part.partition("[")
    if not fold:
        yield part
        return
    ranges, _, tail = rest.partition("]")
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(last) > _DIGITS_MAX:
            raise DriverError(_NO_LIST.format(text=part[:_SHOWN_MAX]))
        for number in range(int(first), int(last or first) + 1):
            for end in _unfolded(tail):
                yield f"{head}{number:0{len(first)}d}{end}"


def decode_shown(text: str, asked: Collection[str]) -> dict[str, SlurmNode]:
    """Return the nodes of ``scontrol -o show nodes`` that were asked for: those in no partition.

    sinfo shows no node that is in no partition. A line that is not about one that was asked for
    counts for nothing.
    """
    return {node.name: node for node in _shown(text.splitlines()) if node.name in asked}


def _shown(lines: Sequence[str]) -> Iterator[SlurmNode]:
    for line in lines:
        name, state = _SHOWN_NAME.match(line), _SHOWN_STATE.search(line)
        if name is None or state is None:
            continue
        reason = _SHOWN_REASON.search(line)
        yield SlurmNode(
            name=name[1],
            host="",
            address="",
            states=frozenset(state[1].split("+")),
            shown_state=state[1],
            partitions=(),
            features="",
            comment="",
            extra="",
            reason=_plain(reason[1]) if reason is not None else "",
        )
