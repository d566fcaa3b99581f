"""A state of another model is the script's fault: going back to an older one cures nothing."""

import traceback

import pytest

from everstep import RestoreError
from everstep.copy_engine.views import OTHER_MODEL
from everstep_common.failures.classification import Side, classify, side


@pytest.mark.parametrize(
    ("said", "whose"),
    [
        (
            f"tensor 'weights' was saved as ('<f4', [2]), but is ('<f4', [3]) here{OTHER_MODEL}",
            "SCRIPT",
        ),
        ("the copy of rank 3 does not have the bytes that were saved", "TRANSIENT"),
    ],
)
def test_whose_fault_it_is_that_a_state_is_not_restored(said: str, whose: str) -> None:
    try:
        raise RestoreError(said)
    except RestoreError:
        lines = traceback.format_exc().splitlines()
    assert side(classify(1, 0, lines).kind) is Side[whose]
