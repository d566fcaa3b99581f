"""Records in a job's folder that were edited, torn or emptied; two jobs on one path; a lost mount.

Nothing of it starts a job from scratch in silence, and nothing that may be the last good step goes.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.storage.backends.backend import BackendError, RivalError
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import Beginning, StepKey, key_of
from everstep_agent.storage.worker.generation_beginning import ensure_beginning
from everstep_agent.storage.worker.messages import StepListing
from everstep_agent.storage.worker.rank_files import write_copy
from everstep_agent.storage.worker.step_listing import list_steps
from everstep_agent.storage.worker.step_publication import move_latest
from everstep_common.mount_points import MountTables
from integration.storage_files import beginning, content, order, publication

Damage = Callable[[Path], object]


def _backend(folder: Path, known: str = "") -> FolderBackend:
    return FolderBackend(str(folder), "demo", 0.02, known=known)


def _silent(count: int) -> None:
    """Progress that nobody asks for."""


def _store(folder: Path, began: Beginning | None, step: int, *keep: StepKey) -> None:
    """Bring a step there as a worker does; ``began`` None: as the version before did."""
    generation = began.generation if began else keep[-1].generation
    key, backend = StepKey(generation, step), _backend(folder)
    if began is not None:
        ensure_beginning(backend, began)
    write_copy(backend, order(str(folder), generation, step), memoryview(content(step)), _silent)
    move_latest(backend, publication(str(folder), generation, key, (*keep, key), began))


def _look(folder: Path) -> StepListing:
    return list_steps(_backend(folder), None)


def _newest(folder: Path) -> StepKey | None:
    seen = _look(folder)
    return seen.latest.target if seen.latest else None


@pytest.fixture
def life(tmp_path: Path) -> Path:
    """Generation 1 stored 10, 20, 30; generation 2 went back to 20, and stored 25."""
    folder = tmp_path / "steps"
    folder.mkdir()
    first, keep = beginning(1), [StepKey(1, 10), StepKey(1, 20), StepKey(1, 30)]
    for number, key in enumerate(keep):
        _store(folder, first, key.step, *keep[:number])
    _store(folder, beginning(2, StepKey(1, 20)), 25, *keep)
    return folder


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"generation":', b'"generation":1'))


def _enlarge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def _link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


_DAMAGES = [Path.unlink, _empty, _tear, _edit, _enlarge, _link]


@pytest.mark.parametrize("damage", _DAMAGES)
def test_without_a_good_latest_the_newest_complete_step_of_the_branch_is_found(
    life: Path, damage: Damage
) -> None:
    damage(life / "demo/latest")
    seen = _look(life)
    assert seen.latest is not None
    assert seen.latest.target == StepKey(2, 25)
    assert "step 25 of generation 2 is the newest complete one by its manifest" in seen.note
    assert seen.branch == (StepKey(1, 20),)


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_manifest_that_is_damaged_is_passed_over_with_words(life: Path, damage: Damage) -> None:
    damage(life / "demo/gen-2/step-25/manifest.json")
    seen = _look(life)
    assert seen.latest is not None
    assert seen.latest.target == StepKey(1, 20)
    if damage is not Path.unlink:  # without one it was never complete, as far as anybody can see
        assert "step 25 of generation 2: manifest.json" in seen.note
    assert seen.lost_latest == StepKey(2, 25)


@pytest.mark.parametrize("damage", _DAMAGES[1:])
def test_a_beginning_that_is_damaged_leads_to_no_stale_branch_in_silence(
    life: Path, damage: Damage
) -> None:
    (life / "demo/latest").unlink()
    damage(life / "demo/gen-2/began.json")
    assert _newest(life) == StepKey(2, 25)  # its own steps are its own
    (life / "demo/gen-2/step-25/manifest.json").unlink()
    seen = _look(life)
    assert seen.latest is None
    assert "generation 2: began.json cannot be used" in seen.doubt
    assert seen.other is not None


def test_when_all_that_was_complete_is_damaged_it_is_an_error_and_no_fresh_start(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    _store(folder, beginning(1), 10)
    _tear(folder / "demo/gen-1/step-10/manifest.json")
    seen = _look(folder)
    assert seen.latest is None
    assert "step 10 of generation 1: manifest.json cannot be used" in seen.doubt


@pytest.mark.parametrize("damage", [None, *_DAMAGES])
def test_a_job_from_scratch_beside_it_removes_nothing_of_it(
    life: Path, damage: Damage | None
) -> None:
    if damage is not None:
        damage(life / "demo/latest")
    seen = _look(life)
    before = {key_of(step) for step in seen.steps}
    fresh, mine = beginning(seen.newest_generation + 1), list[StepKey]()
    for step in (1, 2, 3, 4):
        _store(life, fresh, step, *mine[-1:])
        mine.append(StepKey(fresh.generation, step))
    after = {key_of(step) for step in _look(life).steps}
    assert after == before | set(mine[-2:])


def test_a_generation_that_went_back_removes_no_newer_step(life: Path) -> None:
    lineage = (StepKey(1, 20), StepKey(2, 25))
    for step in (26, 27, 28):
        _store(life, beginning(3, *lineage), step, StepKey(3, step - 1))
    left = {key_of(step) for step in _look(life).steps}
    assert left == {StepKey(1, 30), StepKey(3, 27), StepKey(3, 28)}


def test_what_the_version_before_stored_is_gone_on_from_with_latest_and_without(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    for step in (10, 20):
        _store(folder, None, step, StepKey(1, 10))
    assert list(folder.rglob("began.json")) == []
    assert _newest(folder) == StepKey(1, 20)
    assert _look(folder).note == ""
    (folder / "demo/latest").unlink()
    assert _newest(folder) == StepKey(1, 20)
    _store(folder, beginning(2, StepKey(1, 20)), 30, StepKey(1, 20))
    assert _newest(folder) == StepKey(2, 30)


def test_of_two_jobs_on_one_path_the_one_that_is_overtaken_hears_of_the_other(life: Path) -> None:
    theirs = beginning(3, StepKey(2, 25), job_id="demo-9", cluster="c2")
    _store(life, theirs, 40, StepKey(2, 25))
    ours = beginning(2, StepKey(1, 20))
    with pytest.raises(RivalError, match=r"generation 3 of job demo-9 of another controller"):
        move_latest(_backend(life), publication(str(life), 2, StepKey(2, 25), (), ours))
    assert _newest(life) == StepKey(3, 40)


def test_of_two_jobs_that_begin_at_once_one_has_the_generation(tmp_path: Path) -> None:
    ensure_beginning(_backend(tmp_path), beginning(1))
    with pytest.raises(RivalError, match="two jobs bring their steps to one path"):
        ensure_beginning(_backend(tmp_path), beginning(1, job_id="demo-2"))


def test_the_next_generation_of_the_same_job_is_no_rival(life: Path) -> None:
    _store(life, beginning(3, StepKey(2, 25)), 40, StepKey(2, 25))
    wanted = publication(str(life), 2, StepKey(2, 25), (), beginning(2, StepKey(1, 20)))
    with pytest.raises(BackendError, match="generation 3 has taken over from 2") as raised:
        move_latest(_backend(life), wanted)
    assert not isinstance(raised.value, RivalError)


def test_a_folder_that_was_unmounted_is_not_filled_below_its_mount_point(life: Path) -> None:
    known = _backend(life).identity()
    assert _backend(life, known).list_steps()
    (life / "demo").rename(life.parent / "mounted")
    for look in (_list, _write):
        with pytest.raises(BackendError, match=r"it is gone. Mount its file system again"):
            look(_backend(life, known), life)
    assert list(life.iterdir()) == []
    _backend(life).identity()  # another one of that name
    with pytest.raises(BackendError, match=r"its \.everstep-id is another"):
        _write(_backend(life, known), life)
    (life / "demo/.everstep-id").unlink()
    with pytest.raises(BackendError, match=r"its \.everstep-id is gone"):
        _write(_backend(life, known), life)


def _list(backend: FolderBackend, folder: Path) -> None:
    backend.list_generations()


def _write(backend: FolderBackend, folder: Path) -> None:
    write_copy(backend, order(str(folder), 2, 26), memoryview(content(26)), _silent)


def test_a_path_below_a_mount_point_that_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    point = tmp_path / "my disk"
    (point / "steps").mkdir(parents=True)
    fstab, mounts = tmp_path / "fstab", tmp_path / "mountinfo"
    escaped = str(point).replace(" ", "\\040")
    fstab.write_text(f"# disks\nserver:/x {escaped} nfs noauto 0 0\nUUID=1 none swap sw 0 0\n")
    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    tables = MountTables(str(fstab), str(mounts), str(tmp_path / "units"))
    backend = FolderBackend(str(point / "steps"), "demo", mounts=tables)
    with pytest.raises(BackendError, match="my disk is a mount point, and is not mounted"):
        backend.identity()
    assert list((point / "steps").iterdir()) == []
    mounts.write_text(mounts.read_text() + f"23 22 0:9 / {escaped} rw - nfs server:/x rw\n")
    assert backend.identity()
