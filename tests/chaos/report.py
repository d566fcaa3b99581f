"""Report of a run: what was injected, what was checked, and what does not hold."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run has injected, checked and found."""

    seed: int
    minutes: float
    # By the name of the fault.
    injected: Mapping[str, int]
    skipped: Mapping[str, int]
    # By the name of the invariant.
    checked: Mapping[str, int]
    violations: Mapping[str, list[str]]
    # What agents have noted, and how often the lease changed hands.
    noted: Mapping[str, int]
    terms: int
    events: int

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> "RunReport":
        """Read it from a file."""
        return cls(**json.loads(path.read_text()))

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was violated."""
        return not any(self.violations.values())

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        injected = sum(self.injected.values())
        yield (
            f"seed {self.seed}, {self.minutes:g} minutes: {injected} faults, {self.terms} terms, "
            f"{self.events} events"
        )
        yield "injected:"
        for name, times in sorted(self.injected.items()):
            skipped = self.skipped.get(name, 0)
            yield f"  {times:5} {name}" + (f" ({skipped} had no target)" if skipped else "")
        yield "agents noted:"
        yield from (f"  {times:7} {kind}" for kind, times in sorted(self.noted.items()))
        yield "checked:"
        for name, found in self.violations.items():
            yield f"  {self.checked[name]:7} {name}: {len(found)} violations"
            yield from (f"          {line}" for line in found[:_SHOWN_MAX])
