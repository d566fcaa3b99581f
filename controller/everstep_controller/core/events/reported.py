"""Reports of agents as events: a record of `everstep_common.reports`, and where it came from."""

import typing

from everstep_common.reports import Report, StepsCompleted
from everstep_controller.core.model.facts import Reported

__all__ = ["REPORTS", "Reported", "ReportedEvent"]

ReportedEvent = Reported[Report]
# Steps are put together to rows before they are journaled: see JobProgressed.
REPORTS: frozenset[type] = frozenset(typing.get_args(Report)) - {StepsCompleted}
