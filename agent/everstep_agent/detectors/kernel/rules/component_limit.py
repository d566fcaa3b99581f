"""Component limit: how many components may have one fault before others are told together."""

from collections.abc import Callable
from dataclasses import replace

from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.judgement import Faulty, Judgement

# The largest enclosures have 200 disks. A name in lines may be another each time: in those of a
# site's rule, of a user's network interfaces, or of a user who writes what smartd would.
COMPONENTS_MAX = 256

OpenFinding = Callable[[FindingKey], Finding | None]


class ComponentLimit:
    """Components that have each condition, of lines in which anything may stand."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def bounded(self, judgement: Judgement) -> Judgement:
        """Return it as it is, or of all other components together where there are too many."""
        if not isinstance(judgement, Faulty):
            return judgement
        finding = judgement.finding
        seen = self._seen.setdefault(finding.condition, set())
        if len(seen) >= COMPONENTS_MAX and finding.component not in seen:
            others = f"{finding.component.partition('/')[0]}/others"
            return replace(judgement, finding=replace(finding, component=others))
        seen.add(finding.component)
        return judgement

    def forget_ended(self, open_finding: OpenFinding) -> None:
        """Make room for others where components have what they had no longer."""
        for condition, seen in self._seen.items():
            if len(seen) >= COMPONENTS_MAX:
                keys = [FindingKey(component, condition) for component in seen]
                self._seen[condition] = {
                    key.component for key in keys if open_finding(key) is not None
                }
