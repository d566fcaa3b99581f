"""Refusal: the one answer that launchers and training processes have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """No; one sentence why, which names the next step."""

    reason: str
