"""Losses of two runs, compared to the bit."""

from pathlib import Path

from everstep_cli.demo.losses import compare, read_losses

REFERENCE = [(0, "0x1.8p+0"), (1, "0x1.4p+0"), (2, "0x1.2p+0")]


def test_a_run_that_made_a_step_twice_with_the_same_loss_is_identical() -> None:
    run = [REFERENCE[0], REFERENCE[1], REFERENCE[1], REFERENCE[2]]
    verdict = compare(run, REFERENCE, 3)
    assert verdict.identical
    assert (verdict.retrained, verdict.retrained_equal) == (1, 1)


def test_a_step_that_came_out_different_the_second_time_is_found() -> None:
    run = [*REFERENCE, (1, "0x1.4000000000001p+0")]
    verdict = compare(run, REFERENCE, 3)
    assert not verdict.identical
    assert (verdict.equal, verdict.retrained_equal) == (2, 0)
    assert verdict.first_difference == (
        "step 1: 0x1.4000000000001p+0 and 0x1.4p+0, uninterrupted 0x1.4p+0"
    )


def test_a_step_that_was_left_out_is_found() -> None:
    verdict = compare([REFERENCE[0], REFERENCE[2]], REFERENCE, 3)
    assert not verdict.identical
    assert verdict.missing == (1,)


def test_a_reference_that_ended_early_proves_nothing() -> None:
    assert not compare(REFERENCE, REFERENCE[:2], 3).identical


def test_a_torn_last_line_is_not_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "losses.tsv"
    path.write_text("0\t0x1.8p+0\n1\t0x1.")
    assert read_losses(path) == [(0, "0x1.8p+0")]
    assert read_losses(tmp_path / "absent") == []
