"""Losses that the callbacks of frameworks report, where they are asked to."""

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from everstep.loss import BadStepError
from everstep.run import init


def _call(hook: Callable[..., object], *given: object, **named: object) -> None:
    """Call a callback as its framework does, with stand-ins for what it does not look at."""
    hook(*given, **named)


@pytest.mark.long
def test_lightnings_callback_reports_the_loss_of_the_step_in_hand() -> None:
    from torch import tensor

    from everstep.integrations.lightning import LightningCallback

    callback = LightningCallback(init({}, on_nan="raise"), report_losses=True)
    place = SimpleNamespace(global_step=1)
    _call(callback.on_train_batch_end, place, None, {"loss": tensor(1.0)}, None, 0)
    _call(callback.on_train_batch_end, place, None, None, None, 1)  # a step that was skipped
    with pytest.raises(BadStepError, match="step 1: the loss is nan"):
        _call(callback.on_train_batch_end, place, None, {"loss": tensor(math.nan)}, None, 2)
    quiet = LightningCallback(init({}, on_nan="raise"))
    _call(quiet.on_train_batch_end, place, None, {"loss": tensor(math.nan)}, None, 0)


@pytest.mark.long
def test_the_trainers_callback_reports_what_is_logged_and_refuses_a_log_that_hides_it() -> None:
    from torch.utils.data import DataLoader, IterableDataset

    from everstep.integrations.transformers import EverstepCallback

    class Batches(IterableDataset[int]):
        """No data."""

        def __iter__(self) -> Iterator[int]:
            return iter(())

    callback = EverstepCallback(init({}, on_nan="raise"), report_losses=True)
    place = SimpleNamespace(global_step=8)
    _call(callback.on_log, None, place, None, logs={"learning_rate": 0.1})
    _call(callback.on_log, None, place, None, logs={"loss": 1.0})
    with pytest.raises(BadStepError, match="step 7: the loss is nan"):
        _call(callback.on_log, None, place, None, logs={"loss": math.nan})
    hiding = SimpleNamespace(logging_nan_inf_filter=True)
    loader = DataLoader(Batches())
    with pytest.raises(ValueError, match="set logging_nan_inf_filter=False"):
        _call(callback.on_train_begin, hiding, place, None, train_dataloader=loader)
    quiet = EverstepCallback(init({}, on_nan="raise"))
    _call(quiet.on_log, None, place, None, logs={"loss": math.nan})
