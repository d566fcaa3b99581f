"""What an operator may set of the signals: thresholds, how far automation may go, and overrides."""

from collections.abc import Mapping
from dataclasses import dataclass

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_common.findings import Mode
from everstep_common.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsSettings:
    """The tables under ``[signals]``; docs/signals.md shows every signal with its default."""

    modes: Mapping[str, Mode] = setting(
        factory=dict,
        help='How far automation may go about a condition: "observe", "advise" or "enforce", as in '
        '`LinkSlow = "enforce"`. Those not named keep the default that docs/signals.md shows.',
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        return [
            f"signals.modes.{name}: no condition has this name; docs/signals.md lists them"
            for name in self.modes
            if name not in CONDITIONS
        ]
