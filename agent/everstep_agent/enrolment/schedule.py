"""Renewal schedule: when a certificate is renewed, and when again where that fails. Pure."""

from dataclasses import dataclass

from everstep_proto.enrolment.validity import Validity

# A third of 30 days is ten; two thirds are left for a controller that is away.
_PART = 1 / 3
# So that a fleet that enrolled in a minute does not renew in one: of that third.
_SPREAD = 0.1
# How often an agent asks whose certificate can wait, and one whose certificate ends soon.
_RETRY_S, _RETRY_SOON_S = 3600.0, 60.0
_SOON_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Renewal:
    """Attempts at the renewal of one certificate; ``place`` is this node's, from 0 to 1."""

    place: float
    failed_s: float = float("-inf")

    def due_s(self, known: Validity) -> float:
        """Return when the next attempt is due, as Unix time."""
        life_s = known.ends_s - known.since_s
        first_s = known.since_s + life_s * _PART * (1 + self.place * _SPREAD)
        if self.failed_s < first_s:
            return first_s
        left_s = known.ends_s - self.failed_s
        return self.failed_s + (_RETRY_SOON_S if left_s < _SOON_S else _RETRY_S) * (
            0.5 + self.place
        )
