"""Jobs of the field: their scripts are there, and steps that are made again are seen."""

from pathlib import Path

from field.jobs.reference import read_digests, read_losses
from field.jobs.shapes import SHAPES
from field.machines.image import EXAMPLES, REPOSITORY
from field.observation.records import Redo
from field.observation.watch import LossWatch

_SCRIPTS = REPOSITORY / "tests/field/jobs/scripts"
_UNCHANGED = (
    *("plain.py", "plain_ddp.py", "between_steps.py", "together.py", "epochs.py"),
    *("hanging.py", "hanging_ddp.py"),
)


def test_the_script_of_every_shape_is_on_the_machines() -> None:
    there = {path.name for path in _SCRIPTS.glob("*.py")} | set(EXAMPLES)
    assert {shape.script for shape in SHAPES} <= there
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)


def test_the_steps_between_checkpoints_are_those_of_the_script() -> None:
    steps = {one.name: one.checkpoint_steps for one in SHAPES}
    assert (steps["printed-steps"], steps["epochs"], steps["sdk"]) == (20, 25, 0)
    assert f"STEPS_PER_EPOCH = {steps['epochs']}\n" in (_SCRIPTS / "epochs.py").read_text()
    for one in SHAPES:
        assert bool(one.checkpoint_steps) is one.own_checkpoints, one.name


def test_unchanged_scripts_import_nothing_of_everstep() -> None:
    for name in _UNCHANGED:
        assert "import everstep" not in (_SCRIPTS / name).read_text(), name
        assert "from everstep" not in (_SCRIPTS / name).read_text(), name


def test_jobs_that_prove_restores_have_as_many_ranks_as_their_state_can_be_cut_into() -> None:
    for shape in SHAPES:
        if shape.proves_restores:
            assert 12 % (shape.nodes * shape.ranks_per_node) == 0, shape.name


def test_of_a_step_that_was_made_twice_the_loss_that_was_written_last_counts(
    tmp_path: Path,
) -> None:
    (tmp_path / "losses").write_text("0\t0x1p0\n1\t0x1p1\n1\t0x1p2\n2\tgarb")
    assert read_losses(tmp_path / "losses") == {0: "0x1p0", 1: "0x1p2"}
    assert read_losses(tmp_path / "nothing") == {}


def test_digests_are_read_by_step(tmp_path: Path) -> None:
    (tmp_path / "digests").write_text("0 aa,bb\n1 cc,dd\n")
    assert read_digests(tmp_path / "digests") == {0: ("aa", "bb"), 1: ("cc", "dd")}


def test_a_step_that_is_made_again_is_seen_once_with_the_step_that_had_been_reached(
    tmp_path: Path,
) -> None:
    path = tmp_path / "losses"
    times = iter((1.0, 2.0, 3.0, 7.0, 8.0, 9.0))
    watch = LossWatch(lambda: next(times))
    for text in ("0\ta\n1\tb\n2\tc\n1", "1\td\n", "1\te\n2\tf\n"):
        with path.open("a") as file:
            file.write(text)
        watch.look([("job", path), ("other", tmp_path / "not yet there")])
    # What was half a line at the first look is step 11.
    assert watch.redone == [Redo(8.0, "job", 1, 11, since_s=2.0)]
