"""Which steps in storage are of the newest generation's branch, as began.json tells it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.storage.formats.branch import GenerationFolder, StoredBranch, find_branch
from everstep_agent.storage.formats.records import (
    Beginning,
    LatestPointer,
    RecordError,
    StepKey,
    encode_beginning,
    open_beginning,
)
from everstep_agent.storage.worker.generation_beginning import rival_sentence


def _began(generation: int, *lineage: tuple[int, int]) -> Beginning:
    keys = [StepKey(*key) for key in lineage]
    return Beginning(
        job="llm",
        job_id="llm-7",
        cluster="c1",
        generation=generation,
        parent=keys[-1] if keys else None,
        branch=tuple(keys[:-1]),
    )


def _folder(generation: int, lineage: tuple[tuple[int, int], ...], *steps: int) -> GenerationFolder:
    return GenerationFolder(_began(generation, *lineage), steps=steps)


def _steps(folders: dict[int, GenerationFolder], branch: StoredBranch) -> list[tuple[int, int]]:
    return [(key.generation, key.step) for key, _ in branch.steps(folders)]


def _sure(folders: dict[int, GenerationFolder], branch: StoredBranch) -> list[tuple[int, int]]:
    return [(key.generation, key.step) for key, known in branch.steps(folders) if known]


def test_a_stale_branch_with_higher_numbers_never_wins() -> None:
    folders = {
        1: _folder(1, (), 10, 20, 30, 40),
        2: _folder(2, ((1, 20),), 25, 35),
        3: _folder(3, ((1, 20), (2, 25)), 26),
    }
    assert _steps(folders, find_branch(folders, None)) == [(3, 26), (2, 25), (1, 20), (1, 10)]


def test_a_generation_that_could_write_down_nothing_is_bridged_by_the_next() -> None:
    folders = {1: _folder(1, (), 10, 20, 30), 3: _folder(3, ((1, 20), (2, 24)), 40)}
    assert _steps(folders, find_branch(folders, None)) == [(3, 40), (1, 20), (1, 10)]


def test_a_generation_from_scratch_ends_the_branch() -> None:
    folders = {1: _folder(1, (), 10, 20), 2: _folder(2, ())}
    branch = find_branch(folders, None)
    assert _steps(folders, branch) == []
    assert branch.scratch == 2


def test_a_folder_that_was_only_made_counts_for_nothing() -> None:
    folders = {1: _folder(1, (), 10), 2: GenerationFolder()}
    assert _steps(folders, find_branch(folders, None)) == [(1, 10)]


def test_what_an_older_version_wrote_is_found_as_latest_says_it() -> None:
    folders = {
        1: GenerationFolder(steps=(10, 20, 30)),
        2: GenerationFolder(),
    }
    latest = LatestPointer(generation=2, target=StepKey(1, 20), older=(StepKey(1, 10),))
    branch = find_branch(folders, latest)
    assert _sure(folders, branch) == [(1, 20), (1, 10)]


def test_what_an_older_version_wrote_is_found_without_latest_as_a_guess() -> None:
    folders = {1: GenerationFolder(steps=(10, 40)), 2: GenerationFolder(steps=(20,))}
    branch = find_branch(folders, None)
    assert _sure(folders, branch) == [(2, 20)]
    assert _steps(folders, branch) == [(2, 20), (1, 40), (1, 10)]
    assert "generation 2: nothing says what it began from" in branch.broken


def test_a_new_generation_on_top_of_an_older_version_bounds_the_guess() -> None:
    folders = {
        1: GenerationFolder(steps=(10, 40)),
        2: GenerationFolder(steps=(20, 30)),
        3: _folder(3, ((2, 20),)),
    }
    branch = find_branch(folders, None)
    assert _sure(folders, branch) == [(2, 20)]
    assert _steps(folders, branch) == [(2, 20), (1, 10)]


def test_a_beginning_that_cannot_be_used_makes_what_is_older_a_guess() -> None:
    folders = {1: _folder(1, (), 10, 40), 2: GenerationFolder(problem="torn", steps=(20,))}
    branch = find_branch(folders, None)
    assert _sure(folders, branch) == [(2, 20)]
    assert branch.damaged
    assert branch.broken == "generation 2: torn"


def test_a_pointer_of_a_generation_that_never_was_says_nothing() -> None:
    folders = {1: _folder(1, (), 10), 2: _folder(2, ((1, 10),), 20)}
    latest = LatestPointer(generation=900, target=StepKey(1, 10))
    assert _steps(folders, find_branch(folders, latest)) == [(2, 20), (1, 10)]


@st.composite
def _histories(draw: st.DrawFn) -> dict[int, GenerationFolder]:
    """A job's life: generations with steps, each restored from a step of the branch before it."""
    folders: dict[int, GenerationFolder] = {}
    branch: list[tuple[int, int]] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        before = branch[-1][1] if branch else 0
        steps = draw(st.lists(st.integers(before + 1, before + 9), unique=True))
        if number == 1 or draw(st.booleans()):  # else it could write down nothing
            folders[number] = _folder(number, tuple(branch), *steps)
        last = max(steps, default=before)
        if last:
            restored = draw(st.integers(1, last))
            grown = [*branch, (number, last)]
            origin = next(of for of, through in grown if through >= restored)
            branch = [key for key in grown if key[0] < origin] + [(origin, restored)]
    return folders


@given(_histories())
def test_of_any_life_only_what_the_newest_generation_came_from_is_found(
    folders: dict[int, GenerationFolder],
) -> None:
    newest = max(folders)
    beginning = folders[newest].beginning
    assert beginning is not None
    allowed = {key.generation: key.step for key in beginning.lineage}
    wanted = [(newest, step) for step in folders[newest].steps] + [
        (number, step)
        for number, folder in folders.items()
        for step in folder.steps
        if step <= allowed.get(number, 0)
    ]
    assert sorted(_sure(folders, find_branch(folders, None))) == sorted(wanted)


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 4},
        {"parent": StepKey(3, 1)},
        {"parent": StepKey(2, 10**18)},
        {"parent": StepKey(-1, 1)},
        {"branch": (StepKey(2, 5),)},
        {"job_id": "x" * 300},
        {"cluster": "\ud800"},
        {"job_id": "a\nb"},
    ],
)
def test_a_beginning_that_cannot_be_true_is_refused(change: dict[str, object]) -> None:
    good = _began(3, (1, 5), (2, 9))
    assert open_beginning(encode_beginning(good), 3) == good
    bad = encode_beginning(replace(good, **change))  # type: ignore[arg-type]
    with pytest.raises(RecordError):
        open_beginning(bad, 3)


def test_a_beginning_that_was_edited_is_refused() -> None:
    content = encode_beginning(_began(3, (2, 9)))
    with pytest.raises(RecordError, match="not what was written"):
        open_beginning(content.replace(b"llm-7", b"llm-8"), 3)


def test_a_beginning_says_whose_it_is_and_one_of_a_version_before_is_read_as_ever() -> None:
    before = _began(3, (2, 9))
    written = encode_beginning(before)
    assert b"uid" not in written
    assert open_beginning(written, 3) == before
    ours = replace(before, uid=1000)
    assert open_beginning(encode_beginning(ours), 3) == ours
    # What an agent of that version checks is not changed by what it does not know.
    hashes = [json.loads(encode_beginning(one))["own_hash"] for one in (before, ours)]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("uid", [1001, -1, 2**32, 2**70])
def test_a_user_that_was_not_written_so_or_is_none_is_not_known(uid: int) -> None:
    written = json.loads(encode_beginning(replace(_began(3, (2, 9)), uid=1000)))
    content = json.dumps({**written, "uid": uid}).encode()
    if uid == 2**70:
        with pytest.raises(RecordError):
            open_beginning(content, 3)
    else:
        assert open_beginning(content, 3) == _began(3, (2, 9))


def test_a_user_that_no_machine_has_is_not_known_however_well_it_was_written() -> None:
    content = encode_beginning(replace(_began(3, (2, 9)), uid=2**40))
    assert open_beginning(content, 3).uid is None


def test_a_rival_of_another_controller_is_told_as_what_it_may_be() -> None:
    own = Beginning(job="demo", job_id="demo-1", cluster="a", generation=1)
    assert "job demo-2 of another controller ('everstep run --standalone' starts its own)" in (
        rival_sentence(replace(own, job_id="demo-2", cluster="b", generation=2), own)
    )
    same = rival_sentence(replace(own, job_id="demo-2", generation=2), own)
    assert same.startswith("generation 2 of job demo-2 has taken over")
