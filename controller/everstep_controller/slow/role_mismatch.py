"""Role mismatch: which workers are slow because they do other work than those of their role.

Many of one role that are slow alike, or from the first step on one of every role, as the stages of
a replica with longer sequences: that is work, and no worker's fault.
"""

import numpy as np

from everstep_controller.slow.peers import Floats, Mask, Roster

# Ours: slow alike are those whose ratios are within this part of each other.
_ALIKE = 0.6
# Ours: where no roles are told, so many that are slow alike from the first step on do other work.
_UNTOLD_MIN = 2


class RoleMismatch:
    """Workers that do different work, and by how much it takes longer. Once known, it stays so."""

    def __init__(self, roster: Roster, alone: Mask, share_max: float, apart: float) -> None:
        self._roster, self._judged = roster, ~alone
        self._share_max, self._apart = share_max, apart
        named = len(roster.role_names) > 1 or any(roster.role_names)
        self._told = roster.roles_known or named
        self._roles = np.unique(roster.roles[self._judged])
        # By how much they are off, as logarithms; 0 for all others.
        self.ratios = np.zeros(roster.size)
        # Those of them that were not so in the first steps.
        self.later: Mask = np.zeros(roster.size, dtype=bool)
        # The middles of the first ten steps.
        self._first: Floats | None = None

    def begin(self, middles: Floats) -> None:
        """Take the middles of the first steps: who was slow in them was so from the beginning."""
        self._first = middles

    def left_out(self, slow: Mask, middles: Floats, suspects: Mask) -> Mask:
        """Return who is slow without those who do different work.

        ``suspects`` are those who seem slow now: who recovers is no longer one of many.
        """
        slow = slow & ~(middles < self._apart * self.ratios)
        roles = self._roster.by_role
        seem = np.bincount(roles.of[suspects | (self.ratios > 0)], minlength=roles.count)
        many = seem > np.maximum(1, self._share_max * roles.sizes)
        for role in np.flatnonzero(many | (not self._told)):
            members = self._roster.roles == role
            slow = self._without_many(slow, middles, members, members & suspects)
        return self._without_replicas(slow, middles) if slow.any() else slow

    def _without_many(self, slow: Mask, middles: Floats, members: Mask, suspects: Mask) -> Mask:
        """Leave out those of a role who are too many to be at fault."""
        seem = members & ((slow & suspects) | (self.ratios > 0))
        known = middles[seem & ~np.isnan(middles)]
        if not len(known):
            return slow
        near = float(np.median(known))
        alike = seem | (suspects & _alike(middles, near))
        most = max(1.0, self._share_max * np.count_nonzero(members))
        many = int(np.count_nonzero(alike)) > most
        if not many and not self._told:
            early = self._early(seem | _alike(middles, near), middles)
            many = int(np.count_nonzero(early)) >= _UNTOLD_MIN and bool((slow & early).any())
            alike = early
        if not many:
            return slow
        different = slow & alike & ~(middles > self._apart * near)
        self.later |= different & ~self._early(different, middles)
        return self._note(different, near, slow)

    def _without_replicas(self, slow: Mask, middles: Floats) -> Mask:
        """Leave out those who are slow with one of every other role, from the beginning on."""
        if len(self._roles) < 2:
            return slow
        left = slow & self._judged
        while left.any():
            first = int(np.argmax(left))
            near = float(middles[first])
            alike = self._early(self._judged & _alike(middles, near), middles)
            left[first] = False
            left &= ~alike
            if len(np.unique(self._roster.roles[alike])) == len(self._roles):
                slow = self._note(slow & alike, near, slow)
        return slow

    def _early(self, which: Mask, middles: Floats) -> Mask:
        """Return those that were about as slow in the first steps."""
        first = middles if self._first is None else self._first
        return np.asarray(which & (first > _ALIKE * middles))

    def _note(self, different: Mask, near: float, slow: Mask) -> Mask:
        self.ratios[different] = near
        return slow & ~different


def _alike(middles: Floats, near: float) -> Mask:
    return np.asarray((middles > _ALIKE * near) & (middles * _ALIKE < near))
