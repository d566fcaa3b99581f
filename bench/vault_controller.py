"""Vault part: the figures of the catalogue benchmark, with the vault's targets."""

from collections.abc import Iterator

from table import Row
from vault_catalogue import Bench, commit_rows, question_rows
from vault_commit import TOGETHER
from vault_figures import Figure, Target

_NODES = 2048
_TARGETS = {
    "of one core, at a commit every 10 s": Target(5.0),
    "the recoverable step": Target(20.0),
    "the recoverable step, by parts": Target(20.0),
}


def target_of(name: str) -> Target | None:
    """Return the target of a row; what stands before a colon says how often nodes report."""
    return _TARGETS.get(name.rpartition(": ")[2])


def measure(repeats: int) -> Iterator[Figure]:
    """Measure and yield the figures."""
    bench = Bench(_NODES)
    for together in TOGETHER:
        bench = Bench(_NODES)
        for found in commit_rows(bench, repeats, together):
            yield figure(found, target_of(found.name))
    for found in question_rows(bench, repeats):
        yield figure(found, target_of(found.name))


def figure(found: Row, target: Target | None) -> Figure:
    """Return a row as a figure; the target is for its value."""
    return Figure(
        name=found.name,
        value=found.value,
        unit=found.unit,
        spread=found.spread,
        against=found.against,
        ratio=found.ratio,
        target=str(target or ""),
        met=target.met(found.value) if target else None,
    )
