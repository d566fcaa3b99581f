"""Policy: how far automation may go for a condition on a node, and by which rule.

What an operator has set for the condition on a group of the node comes first; then what is set for
the condition, for the group, and for the fleet. Of several groups the most careful one holds. Where
a group enforces in waves, a node outside the wave is only advised on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from everstep_common.judging.findings import Mode
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.settings import Settings

_ORDER = tuple(Mode)
_PLACES = 2**64


def most_careful(modes: Iterable[Mode]) -> Mode | None:
    """Return the mode in which the least is done; None of none."""
    return min(modes, key=_ORDER.index, default=None)


def place_in_wave(cluster: str, condition: str, node: str) -> float:
    """Return a node's place in the waves of a condition: it is in those of a larger share."""
    digest = blake2b("\0".join((cluster, condition, node)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _PLACES


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that was looked at: where it stands, what it says, and whether it decided."""

    place: str
    says: str
    decides: bool = False


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """What operators have set for one node: the fleet's settings, and its groups by name."""

    node: str
    settings: Settings
    cluster: str = ""
    groups: tuple[tuple[str, Group], ...] = ()

    def mode_of(self, condition: str, most: Mode = Mode.ENFORCE) -> Mode:
        """Return how far automation may go; without an operator's word no further than ``most``."""
        if not self.groups:
            return self.settings.mode_of(condition, most)
        chosen = self._chosen(condition, most)
        in_wave = chosen is not Mode.ENFORCE or self.is_in_wave(condition)
        return chosen if in_wave else Mode.ADVISE

    def _chosen(self, condition: str, most: Mode) -> Mode:
        listed = (group.listed_mode(condition) for _, group in self.groups)
        chosen = most_careful(mode for mode in listed if mode is not None)
        chosen = chosen or self.settings.listed_mode(condition)
        if chosen is not None:
            return chosen
        told = most_careful(group.mode for _, group in self.groups if group.mode is not None)
        return min(told or self.settings.mode, most, key=_ORDER.index)

    def share_of(self, condition: str) -> float:
        """Return the share of nodes like this one on which a condition is enforced."""
        return min((group.share_of(condition) for _, group in self.groups), default=1.0)

    def is_in_wave(self, condition: str) -> bool:
        """Return whether a condition that may be enforced is enforced on this node."""
        share = self.share_of(condition)
        return share >= 1 or place_in_wave(self.cluster, condition, self.node) < share

    @property
    def cordon(self) -> bool | None:
        """Return whether a driver that can do so cordons it; None: as that is configured."""
        told = [group.cordon for _, group in self.groups if group.cordon is not None]
        return any(told) if told else None

    # --- for people ------------------------------------------------------------------------------

    def rules_of(self, condition: str, most: Mode = Mode.ENFORCE) -> Iterator[Rule]:
        """Yield each rule that was looked at for a condition, those first that come first."""
        limited = decided = self._is_limited(condition, most)
        for rule, mode in self._levels(condition):
            decides = mode is not None and not decided
            decided = decided or decides
            yield Rule(*rule, decides=decides)
        if limited:
            yield Rule("the condition", f"is shipped with {most.value} at most", decides=True)
        if self._chosen(condition, most) is Mode.ENFORCE:
            yield from self._waves(condition)

    def _levels(self, condition: str) -> Iterator[tuple[tuple[str, str], Mode | None]]:
        """Yield where each level stands with what it says, and its mode; None where it has none."""
        said = [(name, group.listed_mode(condition)) for name, group in self.groups]
        yield from _of_groups(f"{condition} in group", said)
        mode = self.settings.listed_mode(condition)
        yield (f"{condition} in [core]", mode.value if mode else "says nothing"), mode
        yield from _of_groups("the mode of group", [(name, g.mode) for name, g in self.groups])
        yield ("the mode of the fleet", self.settings.mode.value), self.settings.mode

    def _is_limited(self, condition: str, most: Mode) -> bool:
        chosen = self._chosen(condition, most)
        return chosen is most and self._chosen(condition, Mode.ENFORCE) is not chosen

    def _waves(self, condition: str) -> Iterator[Rule]:
        place, share = place_in_wave(self.cluster, condition, self.node), self.share_of(condition)
        for name, group in self.groups:
            own = group.share_of(condition)
            if own < 1:
                out = place >= own
                where = f"{self.node} is not in it: advised" if out else f"{self.node} is in it"
                said = f"enforces {condition} on {own:.2%} of its nodes, and {where}"
                yield Rule(f"the wave of group {name}", said, decides=out and own == share)


def _of_groups(
    place: str, said: list[tuple[str, Mode | None]]
) -> Iterator[tuple[tuple[str, str], Mode | None]]:
    """Yield what groups say, the most careful first: it is the one that holds."""
    spoken = [(name, mode) for name, mode in said if mode is not None]
    for name, mode in sorted(spoken, key=lambda one: (_ORDER.index(one[1]), one[0])):
        yield (f"{place} {name}", mode.value), mode
