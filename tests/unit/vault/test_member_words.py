"""What members free among themselves while no controller is there, and what they never free."""

import random
from dataclasses import replace

import pytest

from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable
from everstep_agent.vault.snapshots.member_words import (
    HeldSteps,
    MemberWords,
    StepWord,
    combine,
    forget,
    word_of_rank,
)
from everstep_common.member_tree import CHILDREN_MAX, collector_of, told_to
from unit.vault.member_words_model import SLOTS, Model, World

_SEEDS = range(12)


# --- words ---------------------------------------------------------------------------------------


def _word(
    safe: tuple[int, ...], *, held: tuple[int, ...] = (), told: int = -1, since: int = -1
) -> StepWord:
    held = held or safe
    return replace(word_of_rank(1, HeldSteps(held, held, safe), since), told=told)


def test_the_newest_step_that_all_have_is_recoverable_and_what_is_older_is_freed() -> None:
    everyone = combine([_word((5, 6, 7)), _word((6, 7)), _word((5, 6), held=(5, 6, 7))])
    known = forget(Recoverable(1, 4), everyone, range(4, 8))
    assert known == Recoverable(1, 6)
    assert known.frees(CopyKey(1, 0, 5))
    assert not known.frees(CopyKey(1, 0, 6))


def test_the_oldest_of_their_newest_steps_is_not_enough() -> None:
    # 7 is the lowest of the newest, and the second member does not have it.
    everyone = combine([_word((5, 7)), _word((5, 8))])
    assert forget(Recoverable(1, 4), everyone, range(4, 9)).step == 5


def test_a_step_that_a_rank_has_passed_is_freed_and_one_that_may_still_come_is_not() -> None:
    everyone = combine([_word((4,), held=(4, 6, 8)), _word((4,), held=(4, 7))])
    known = forget(Recoverable(1, 4), everyone, range(4, 9))
    # 5 nobody has; the second has passed 6, and the first 7; the second has not come to 8 yet.
    assert known.dead_steps == {5, 6, 7}


def test_what_is_older_than_all_that_a_new_agent_has_seen_is_not_called_passed() -> None:
    # The agent of the second has lost its memory; the keeper of its replicas may have 5.
    everyone = combine([_word((5,), held=(4, 5, 9)), _word((), held=(9,), since=9)])
    assert forget(Recoverable(1, 4), everyone, range(4, 10)) == Recoverable(1, 4)


def test_what_one_was_told_all_know() -> None:
    everyone = combine([_word((5,), told=7), _word((5, 7), held=(5, 7, 9))])
    assert forget(Recoverable(1, 4), everyone, range(4, 10)).step == 7


@pytest.mark.parametrize(
    "word",
    [
        StepWord(1, told=10**30),
        StepWord(1, safe=(10**30, 9)),
        StepWord(1, passed=10**30),
        StepWord(1, safe=(-7,), since=-(10**30)),
    ],
)
def test_a_word_of_a_step_that_is_not_here_frees_nothing_older(word: StepWord) -> None:
    known = forget(Recoverable(1, 5), word, {4, 5, 6, 7})
    assert known.step == 5
    assert not known.frees(CopyKey(1, 0, 5))


def test_a_word_of_an_older_generation_frees_nothing_and_a_controllers_truth_stays() -> None:
    everyone = combine([_word((5, 6)), _word((5, 6))])
    assert forget(Recoverable(2, None), everyone, range(9)) == Recoverable(2, None)
    newer = Recoverable(1, 8, frozenset({9}))
    assert forget(newer, everyone, range(10)) == newer


def test_one_silent_member_leaves_no_word_of_all() -> None:
    words = MemberWords(1, 0, 3)
    words.conclude(_word((5,)))
    assert words.hear(1, _word((5,)))
    words.conclude(_word((5,)))
    assert words.everyone is None
    assert words.hear(2, _word((5,)))
    words.conclude(_word((5,)))
    assert words.everyone is not None


def test_words_of_another_generation_and_of_no_child_are_refused() -> None:
    words = MemberWords(2, 0, 3)
    assert not words.hear(1, _word((5,)))
    assert not words.hear(3, StepWord(2))
    assert not words.hear(0, StepWord(2))


@pytest.mark.parametrize("count", [1, 2, CHILDREN_MAX + 1, CHILDREN_MAX + 2, 2048])
def test_each_member_but_the_first_is_told_of_by_one_other(count: int) -> None:
    heard = [child for number in range(count) for child in told_to(number, count)]
    assert sorted(heard) == list(range(1, count))
    assert all(number in told_to(collector_of(number) or 0, count) for number in range(1, count))


# --- schedules -----------------------------------------------------------------------------------


def _world(seed: int, **more: int) -> World:
    dice = random.Random(seed)
    return World(
        members=more.get("members") or dice.choice((1, 2, 2, 3, 4, 18)),
        ranks=dice.choice((1, 2)),
        step_ms=dice.choice((15, 50, 130, 400, 1500)),
        copy_ms=dice.choice(((1, 5), (5, 80), (100, 900))),
        lost=dice.choice((0, 0, 20)),
        doubled=dice.choice((0, 20)),
        late=dice.choice((0, 20)),
        skipped=more.get("skipped", dice.choice((0, 0, 1, 2))),
        slots=more.get("slots", SLOTS),
    )


def _longest_s(world: World, seed: int) -> float:
    """Return for how long of a minute nothing newer was recoverable at most."""
    model = Model(world, seed)
    behind_s, known, longest_s = 0.0, -1, 0.0
    for _ in range(60):
        model.run(1_000)
        step = model.recoverable(1)
        behind_s = 0.0 if step > known else behind_s + 1.0
        known, longest_s = max(step, known), max(longest_s, behind_s)
        assert model.most_replicas() <= 2 * SLOTS + 1
    return longest_s


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("seed", _SEEDS)
def test_memory_is_freed_all_the_time_and_what_is_recoverable_stays(seed: int, slots: int) -> None:
    world = _world(seed, members=2 + seed % 5, slots=slots)
    # However fast the steps are: what the words need, and multiples that somebody skips.
    assert _longest_s(world, seed) < 45.0


def test_with_one_slot_to_spare_members_take_turns_for_good_where_none_tells_what_it_lacks() -> (
    None
):
    worlds = [replace(_world(seed, members=2, slots=2), tells=False) for seed in _SEEDS]
    stopped = [world for seed, world in enumerate(worlds) if _longest_s(world, seed) > 50.0]
    assert len(stopped) > len(worlds) / 3


def test_a_step_that_a_rank_has_left_out_is_freed_before_it_has_a_newer_one() -> None:
    words = [
        word_of_rank(1, HeldSteps((4, 6), (4, 6), (4,))),
        word_of_rank(1, HeldSteps((4, 5), (4, 5), (4,), left_out=6)),
    ]
    assert forget(Recoverable(1, 4), combine(words), range(4, 9)).dead_steps == {5, 6}
    # An agent that has started again says nothing of what was before, left out or not.
    words[1] = word_of_rank(1, HeldSteps((), (), (), left_out=6), 6)
    assert forget(Recoverable(1, 4), combine(words), range(4, 9)).dead_steps == frozenset()


@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_happens_the_last_recoverable_step_is_never_freed(seed: int) -> None:
    dice = random.Random(seed)
    world = _world(seed, skipped=dice.choice((0, 5, 30)), slots=2 + seed % 2)
    model = Model(world, seed)
    for _ in range(12):
        model.run(dice.randint(500, 5_000))
        number = dice.randrange(world.members)
        member = model.members[number]
        match dice.randrange(5):
            case 0:
                member.silent = not member.silent
            case 1:
                model.restart_agent(number, keeps_memory=model.memory_lost or dice.random() < 0.8)
            case 2:
                older = max(model.floor.get(1, -1) - dice.randint(0, 20), -1)
                target = dice.choice([n for n in range(world.members) if n != number] or [0])
                model.direct(number, None if older < 0 else older, target)
            case 3:
                for every in range(world.members):
                    model.leave(every)
            case _:
                model.run(dice.randint(0, 3_000))


@pytest.mark.parametrize("seed", _SEEDS)
def test_one_silent_member_frees_nothing_and_its_return_frees_again(seed: int) -> None:
    world = _world(seed, members=2 + seed % 4)
    model = Model(world, seed)
    model.run(20_000)
    quiet = seed % world.members
    model.members[quiet].silent = True
    model.run(12_000)  # words on their way have come
    before = [member.recoverable.step for member in model.members]
    model.run(15_000)
    assert [member.recoverable.step for member in model.members] == before
    model.members[quiet].silent = False
    model.run(40_000)
    after = [member.recoverable.step for member in model.members]
    assert all((now or 0) > (was or 0) for now, was in zip(after, before, strict=True))


@pytest.mark.parametrize("seed", _SEEDS)
def test_nothing_is_freed_across_a_fence(seed: int) -> None:
    dice = random.Random(seed)
    world = _world(seed, members=2 + seed % 4)
    model = Model(world, seed)
    model.run(20_000)
    kept = model.recoverable(1)
    order = dice.sample(range(world.members), world.members)
    for number in order[: dice.randint(1, world.members - 1)]:
        model.begin_generation(number, 2)
    model.run(15_000)
    # Some train in one generation, some in the next: neither has a word of all.
    assert model.recoverable(1, copies=1) >= kept
    assert all(m.recoverable.generation < 2 for m in model.members)
    for number in range(world.members):
        if model.members[number].generation == 1:
            model.begin_generation(number, 2)
    model.run(40_000)
    assert model.recoverable(2) >= 0
