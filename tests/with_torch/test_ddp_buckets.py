"""Steps under DDP on three ranks or more are those of a run without restarts, to the bit."""

from pathlib import Path

import pytest

from with_torch.ddp_buckets import NETS, cut_and_whole, traces
from with_torch.world import run_world

_STEPS, _CUTS = 24, (5, 11, 18)
# Nets of which a run that rebuilds no buckets ahead differs; "unused" never does.
_DIFFERING = ["small", "noisy", "crossed"]


@pytest.mark.parametrize("ranks", [3, 4])
def test_with_rebuilt_buckets_no_step_differs_after_three_restarts(
    ranks: int, tmp_path: Path
) -> None:
    found = run_world(ranks, tmp_path, cut_and_whole, list(NETS), _STEPS, _CUTS, True)
    assert found == [[0] * len(NETS)] * ranks


def test_without_them_some_do(tmp_path: Path) -> None:
    """If torch ever sums alike in all steps of a process, `rebuild_buckets` is not needed."""
    found = run_world(4, tmp_path, cut_and_whole, [*_DIFFERING, "unused"], _STEPS, _CUTS, False)
    assert [count > 0 for count in found[0]] == [True, True, True, False]


def test_a_rebuild_leaves_buffers_random_state_and_gradients_as_they_were(tmp_path: Path) -> None:
    assert run_world(2, tmp_path, traces) == [(True, True, True)] * 2
