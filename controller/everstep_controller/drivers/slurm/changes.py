"""Changes of nodes at Slurm: what differs between what is wanted and what is, as commands. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.slurm.names import (
    ARGUMENT_BYTES_MAX,
    LINE_BYTES_MAX,
    NoteField,
    node_lists,
)
from everstep_controller.drivers.slurm.nodes import SlurmNode
from everstep_controller.drivers.slurm.reasons import (
    NOT_RESPONDING,
    drain_reason,
    is_our_note,
    node_note,
)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a node's state, reason and note; nodes with equal changes are changed at once."""

    state: str
    reason: str = ""
    # What its note becomes; None: it stays.
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """What the changes of a cluster depend on besides what is wanted."""

    cluster_id: str
    note_field: NoteField


def change_of(wanted: WantedIsolation, node: SlurmNode, rules: ChangeRules) -> Change | None:
    """Return what makes a node as it is wanted; None where it is, or where others withhold it."""
    hold = node.hold(rules.cluster_id)
    if hold is not None and not hold.ours:
        return None
    if not wanted.withheld:
        return _release(node, rules) if hold is not None else None
    note = _note(node, node_note(wanted), rules)
    if is_as_wanted(wanted, node, rules) and note is None:
        return None
    return Change("drain", drain_reason(wanted, rules.cluster_id), note)


def is_as_wanted(wanted: WantedIsolation, node: SlurmNode, rules: ChangeRules) -> bool:
    """Return whether nothing is left to do for a node; what is others' is theirs."""
    hold = node.hold(rules.cluster_id)
    if hold is None or not hold.ours:
        return not wanted.withheld or hold is not None
    return wanted.withheld and node.has_reason(drain_reason(wanted, rules.cluster_id))


def _release(node: SlurmNode, rules: ChangeRules) -> Change:
    return Change("undrain", _reason_left(node), _note(node, "", rules))


def _reason_left(node: SlurmNode) -> str:
    """Return the reason that a node has when it is drained no more; empty: Slurm removes ours.

    One that is down keeps its reason, and only with slurmctld's own it is in service again when its
    slurmd answers (ReturnToService=1).
    """
    if not node.is_down:
        return ""
    return NOT_RESPONDING if node.is_silent else "down at Slurm; Everstep holds it no more"


def _note(node: SlurmNode, text: str, rules: ChangeRules) -> str | None:
    """Return what a node's note becomes; None where it stays: it is so, or somebody else's."""
    if rules.note_field is NoteField.NONE:
        return None
    now = (node.comment if rules.note_field is NoteField.COMMENT else node.extra).strip('"')
    return None if now == text or not is_our_note(now) else text


def grouped(changes: Mapping[str, Change]) -> Mapping[Change, Sequence[str]]:
    """Return the names of the nodes that have each change."""
    found: defaultdict[Change, list[str]] = defaultdict(list)
    for name, change in changes.items():
        found[change].append(name)
    return found


def update_words(
    groups: Mapping[Change, Sequence[str]], note_field: NoteField
) -> Iterator[tuple[str, ...]]:
    """Yield the words of each ``scontrol update``: one where one is enough."""
    bytes_max = ARGUMENT_BYTES_MAX if len(groups) == 1 else LINE_BYTES_MAX
    for change, names in groups.items():
        more = [f"reason={change.reason}"] if change.reason else []
        more += [f"{note_field.value}={change.note}"] if change.note is not None else []
        for part in node_lists(names, bytes_max):
            yield ("update", f"nodename={','.join(part)}", f"state={change.state}", *more)


def update_line(words: Sequence[str]) -> str:
    """Return an update as a line on scontrol's standard input.

    Only a reason has spaces, and no text has a quote, a backslash or the end of a line in it: both
    are of allowed characters, and a node's name is one that Slurm told.
    """
    return " ".join(_quoted(word) for word in words) + "\n"


def _quoted(word: str) -> str:
    key, _, value = word.partition("=")
    return f'{key}="{value}"' if " " in value else word
