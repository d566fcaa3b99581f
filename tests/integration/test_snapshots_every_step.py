"""A snapshot at every step while steps are stored: none is skipped, with the default settings."""

from pathlib import Path

import pytest

from integration.counting import ended, latest_step, launch, said
from integration.real_fleet import running_fleet

_STEPS = 40
_MIB = 1 << 20


def _train(tmp_path: Path, nodes: int, size: int, step_s: float, patience_s: float) -> None:
    stored = tmp_path / "stored"
    with running_fleet(*(f"node-{number}" for number in range(nodes))) as fleet:
        options = ("--persist", str(stored), "--persist-every", "5", "--snapshot-every", "1")
        fleet.launcher_options = options
        launch(fleet, size=size, steps=_STEPS, step_seconds=step_s)
        fleet.until("the end", patience_s, lambda: ended(fleet))
        ranks = said(fleet)
        assert ranks.keys() == {(1, rank) for rank in range(nodes)}, fleet.logs()
        assert all(rank["ended"] and rank["unsaved"] == 0 for rank in ranks.values()), ranks
        # Training did not end before anything was stored.
        assert latest_step(stored) >= 5


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.long), 2])
def test_no_step_is_skipped_while_steps_are_stored(tmp_path: Path, nodes: int) -> None:
    _train(tmp_path, nodes, size=32 * _MIB, step_s=0.15, patience_s=120)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("nodes", "size"), [(1, 2048 * _MIB), (2, 512 * _MIB)])
def test_no_step_is_skipped_while_two_gibibytes_are_stored(
    tmp_path: Path, nodes: int, size: int
) -> None:
    _train(tmp_path, nodes, size=size, step_s=3.0, patience_s=800)
