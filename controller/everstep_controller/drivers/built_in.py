"""Built-in driver: stands in for a scheduler where there is none."""

from collections.abc import Mapping, Sequence

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverView


class BuiltInDriver:
    """Driver without a scheduler: each wish holds at once, for the core looks at claims itself."""

    def __init__(self, remembered: Mapping[str, Hold]) -> None:
        self._holds = dict(remembered)

    async def read(self) -> DriverView:
        """See IsolationDriver."""
        return DriverView(dict(self._holds))

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver."""
        for one in wanted:
            if one.withheld:
                self._holds[one.node] = Hold(one.reason, ours=True)
            else:
                self._holds.pop(one.node, None)
        return Applied({one.node: self._holds.get(one.node) for one in wanted})
