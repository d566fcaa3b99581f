"""What /metrics tells of snapshots: numbers where there are some, nothing where there are none."""

from dataclasses import replace

from everstep_common.reports import Turnover
from everstep_controller.core.vault.snapshot_table import SnapshotNumbers, StepState, StorageTable
from everstep_controller.metrics.snapshot_metrics import snapshot_metrics

S = 1_000_000_000
NOW_NS = 1000 * S


_STORAGE = StorageTable(
    path="/c", every_steps=5, every_ns=0, keep=2, step=15, generation=1, size_bytes=1,
    stored_ns=NOW_NS - 40 * S, pending=(20,), failure="full", failed_step=10,
)  # fmt: skip

_TABLE = SnapshotNumbers(
    job="llama",
    restore_step=20,
    recoverable_step=19,
    recoverable_age_ns=2_500_000_000,
    steps_behind=3,
    states={StepState.PARTIAL: 1, StepState.COMPLETE: 2, StepState.BLACKLISTED: 1},
    snapshot_every=2,
    storage=_STORAGE,
    bad_copies=4,
    turnover=Turnover(3, 150_000_000, 310_000_000),
)
_NOTHING = replace(
    _TABLE,
    job="new",
    restore_step=None,
    recoverable_step=None,
    recoverable_age_ns=0,
    steps_behind=0,
    states={},
    snapshot_every=0,
    storage=None,
    bad_copies=0,
    turnover=None,
)


def _told(*tables: SnapshotNumbers) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("everstep_job_"), *sample.labels.values()): sample.value
        for metric in snapshot_metrics(tables, NOW_NS)
        for sample in metric.samples
    }


def test_a_job_tells_what_a_failure_would_cost() -> None:
    told = _told(_TABLE)
    assert told["recoverable_step_age_seconds", "llama"] == 2.5
    assert told["recoverable_steps_behind", "llama"] == 3
    assert told["restore_step", "llama"] == 20
    assert told["snapshot_interval_steps", "llama"] == 2
    assert told["slot_turnover_seconds", "llama"] == 0.31
    assert told["bad_copies_total", "llama"] == 4


def test_steps_are_counted_by_what_may_become_of_them() -> None:
    told = _told(_TABLE)
    numbers = {key[2]: value for key, value in told.items() if key[0] == "snapshot_steps"}
    assert numbers == {
        "complete": 2, "partial": 1, "probation": 0, "blacklisted": 1, "abandoned": 0,
    }  # fmt: skip


def test_a_job_with_storage_tells_how_far_that_is() -> None:
    told = _told(_TABLE)
    assert told["stored_step", "llama"] == 15
    assert told["stored_step_age_seconds", "llama"] == 40
    assert told["storing_steps", "llama"] == 1
    assert told["storing_failed", "llama"] == 1


def test_what_a_job_does_not_have_is_no_zero() -> None:
    told = _told(_NOTHING)
    assert told["restore_step", "new"] == -1
    absent = {"recoverable_step_age_seconds", "recoverable_steps_behind", "stored_step"}
    absent.add("slot_turnover_seconds")
    assert not absent & {key[0] for key in told}


def test_storage_without_a_whole_step_has_no_age() -> None:
    storage = replace(_STORAGE, step=None, stored_ns=0, failure="", pending=())
    told = _told(replace(_TABLE, storage=storage))
    assert told["stored_step", "llama"] == -1
    assert told["storing_failed", "llama"] == 0
    assert ("stored_step_age_seconds", "llama") not in told


def test_each_job_has_series_of_its_own() -> None:
    told = _told(_TABLE, _NOTHING)
    assert {key[1] for key in told if key[0] == "restore_step"} == {"llama", "new"}


def test_every_name_is_new_and_has_a_sentence() -> None:
    families = list(snapshot_metrics([_TABLE], NOW_NS))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.documentation.endswith(".") for family in families)
