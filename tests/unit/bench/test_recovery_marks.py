"""What a recovery cost, read from what its ranks wrote down."""

from pathlib import Path

from recovery.marks import RankLog, common_step, read_logs, recovery

_S = 1_000_000_000
_FAULT_NS = 10 * _S


def _log(rank: int, imported_s: int, steps: dict[int, int], begun_s: int = 0) -> RankLog:
    marks = {"begun": begun_s * _S, "imported": imported_s * _S}
    return RankLog(rank, 100 + rank, marks, {step: at_s * _S for step, at_s in steps.items()})


_BEFORE = [_log(0, 1, {4: 8, 5: 9}), _log(1, 1, {4: 8, 5: 9, 6: 10})]


def test_a_step_that_only_one_rank_completed_is_not_common() -> None:
    assert common_step(_BEFORE, 2) == 5
    assert common_step(_BEFORE[:1], 2) == -1


def test_a_step_that_is_made_again_is_lost_and_ends_nothing() -> None:
    after = [_log(0, 12, {4: 13, 5: 14}), _log(1, 12, {4: 13, 5: 14})]
    assert recovery([*_BEFORE, *after], 2, _FAULT_NS) is None

    after = [_log(0, 12, {4: 13, 5: 14, 6: 15}), _log(1, 12, {4: 13, 5: 14, 6: 17})]
    found = recovery([*_BEFORE, *after], 2, _FAULT_NS)
    assert found is not None
    assert (found.seconds, found.lost_steps) == (7.0, 2)


def test_going_on_with_the_next_step_loses_none() -> None:
    after = [_log(0, 12, {6: 15}), _log(1, 13, {6: 15})]
    found = recovery([*_BEFORE, *after], 2, _FAULT_NS)
    assert found is not None
    assert found.lost_steps == 0
    assert found.marks["imported"] == 3.0


def test_a_generation_that_came_to_nothing_does_not_count() -> None:
    failed = [_log(0, 11, {}), _log(1, 11, {})]
    after = [_log(0, 20, {6: 21}), _log(1, 20, {6: 22})]
    found = recovery([*_BEFORE, *failed, *after], 2, _FAULT_NS)
    assert found is not None
    assert (found.seconds, found.marks["imported"]) == (12.0, 10.0)


def test_a_warm_standby_was_there_before_the_fault() -> None:
    after = [_log(0, 11, {6: 12}, begun_s=5), _log(1, 11, {6: 12}, begun_s=5)]
    found = recovery([*_BEFORE, *after], 2, _FAULT_NS)
    assert found is not None
    assert found.marks["begun"] == 0


def test_a_line_that_was_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank-2-77").write_text("begun 1\nimported 2\nstep 0 3\nstep 1 1", encoding="ascii")
    (log,) = read_logs(tmp_path)
    assert (log.rank, log.pid, log.steps) == (2, 77, {0: 3})
