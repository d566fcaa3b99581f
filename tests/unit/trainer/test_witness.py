"""A copy during which the state changed is known as one."""

import numpy as np
import pytest

from everstep.saving.step_saving import Witness
from everstep.state.plain import PlainCapture


def test_a_state_that_stays_is_not_suspected() -> None:
    state = {"a": np.zeros(10_000), "none": np.zeros(0), "b": bytearray(3)}
    assert Witness(PlainCapture(state).views()).changed() == ""


@pytest.mark.parametrize("size", [1, 15, 64, 1_000_000])
def test_an_update_of_an_array_is_seen(size: int) -> None:
    state = {"a": np.zeros(5), "b": np.zeros(size)}
    witness = Witness(PlainCapture(state).views())
    state["b"] += 1e-9
    assert witness.changed() == "b"


def test_an_update_that_has_only_begun_is_seen() -> None:
    state = {"a": np.zeros(1_000_000)}
    witness = Witness(PlainCapture(state).views())
    state["a"][:100] = 1.0
    assert witness.changed() == "a"
