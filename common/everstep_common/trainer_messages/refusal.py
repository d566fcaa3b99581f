"""Refusals: the answers to launchers and training processes that are not let in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """No; one sentence why, which names the next step."""

    reason: str


@dataclass(frozen=True, slots=True)
class RefusedForNow:
    """Not now: another launcher has the place. Who asks again in a moment may be let in.

    Apart from Refused, which launchers of every version understand.
    """

    reason: str
