"""Steps that unchanged scripts tell in their output."""

import pytest

from everstep.launch.output.progress_patterns import (
    EpochCount,
    PatternError,
    StepFinder,
    own_patterns,
)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step 12", 12),
        ("Step: 12/1000 loss 3.1", 12),
        ("[rank0] step=12, loss=0.4", 12),
        ("2026-01-01 INFO - step:  12  loss:  8.2  memory: 1.5GiB", 12),
        ("{'loss': 2.1, 'global_step': 12}", 12),
        ('{"global_step": 12, "loss": 2.1}', 12),
        ("Iteration 12/1000", 12),
        (" iteration       12/    1000 | consumed samples:  96 |", 12),
        ("iter 12: loss 2.3", 12),
        ("  1%|▏         | 12/1000 [00:03<04:11,  3.9it/s]", 12),
        ("100%|██████████| 12/12 [00:40<00:00,  3.31s/it]", 12),
        ("Epoch 0:  12%|█▏        | 12/100 [00:01<00:09,  9.0it/s, v_num=0]", 12),
        ("Epoch 3:  12%|█▏        | 12/100 [00:01<00:09,  9.0it/s]", 12),
        ("train:  12%|█▏        | 12/100 [00:01<00:09,  9.0it/s, loss=2.1]", 12),
        ("[rank 0] training  12%|█▏        | 12/100 [00:01<00:09,  1.1s/batch]", 12),
        ("step 0", 0),
    ],
)
def test_common_trainers(line: str, step: int) -> None:
    assert StepFinder(own_patterns(None)).find(line.encode()) == step


@pytest.mark.parametrize(
    "line",
    [
        "loss 0.12",
        "footstep 12",
        "step_size 12.5",
        "step 0.5",
        "time per iteration: 12.5",
        "steps_per_epoch: 100",
        "total iterations: 1000",
        "60 steps: 93% of the test images recognized",
        "Map (num_proc=4):  12%|█▏  | 12/100 [00:01<00:09, 9.0 examples/s]",
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.1s/it]",
        "Validation DataLoader 0:  12%|█▏        | 12/100 [00:01<00:09,  9.0it/s]",
        "train:   0%|          | 0/100 [00:00<?, ?it/s]",
        "train:  50%|█████     | 50/100 [00:00<?, ?it/s]",
        "x" * 500 + " step 12",
        "step ١٢",
        "step " + "9" * 30,
    ],
)
def test_what_is_no_step(line: str) -> None:
    assert StepFinder(own_patterns(None)).find(line.encode()) is None


def test_only_newer_steps_and_only_of_the_first_pattern_count() -> None:
    finder = StepFinder(own_patterns(None))
    lines = [b"iteration 3", b"step 900", b"iteration 3", b"iteration 2", b"iteration 7"]
    assert [finder.find(line) for line in lines] == [3, None, None, None, 7]


@pytest.mark.parametrize(
    "line",
    [
        "Resuming from step 100",
        "resumed at iteration 100",
        "=> loaded checkpoint at iteration 100",
        " loading checkpoint from /x at iteration 100",
        "Continuing training from global step 100",
    ],
)
def test_where_a_script_goes_on_is_no_step_that_it_has_made(line: str) -> None:
    finder = StepFinder(own_patterns(None))
    told = [line, line, "step 100 loss 0.1", "step 101 loss 0.1"]
    assert [finder.find(text.encode()) for text in told] == [None, None, 100, 101]


def test_only_one_number_is_taken_for_where_a_script_goes_on() -> None:
    finder = StepFinder(own_patterns(None))
    told = [f"loading {1 / (step + 1):.1f} s, step {step}" for step in range(3)]
    assert [finder.find(text.encode()) for text in told] == [None, 1, 2]


def test_a_state_that_is_saved_is_no_step_unless_nothing_else_tells_steps() -> None:
    finder = StepFinder(own_patterns(None))
    told = ["step 49", "saved checkpoint at step 50", "step 50"]
    assert [finder.find(text.encode()) for text in told] == [49, None, 50]
    finder = StepFinder(own_patterns(None))
    told = ["saved checkpoint at step 50", "saved checkpoint at step 100"]
    assert [finder.find(text.encode()) for text in told] == [50, 100]


def test_own_patterns() -> None:
    assert StepFinder(own_patterns([r"batch (\d+) done"])).find(b"batch 4 done") == 4
    named = own_patterns([r"(\w+) at (?P<step>\d+)"])
    assert StepFinder(named).find(b"loss at 4") == 4
    assert StepFinder(own_patterns([r"(\w+) done"])).find(b"batch done") is None
    assert StepFinder(own_patterns(["none"])).find(b"step 4") is None


@pytest.mark.parametrize("text", ["(", "no group", "(?P<step>"])
def test_a_pattern_that_finds_no_number_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match="--progress-pattern"):
        own_patterns([text])


def _found(finder: StepFinder, *lines: str) -> list[int | None]:
    return [finder.find(line.encode()) for line in lines]


def test_steps_that_are_counted_anew_in_each_epoch_go_on() -> None:
    finder = StepFinder(own_patterns(None))
    lines = [f"epoch {epoch} step {step}/3 loss 0.1" for epoch in range(3) for step in range(3)]
    assert _found(finder, *lines) == list(range(9))
    finder = StepFinder(own_patterns(None))
    lines = [f"Epoch [{epoch}/2] iter: {step}" for epoch in (1, 2) for step in (10, 20, 30)]
    assert _found(finder, *lines) == [10, 20, 30, 40, 50, 60]
    finder = StepFinder(own_patterns(None))
    headed = ["Epoch 1", "step 1", "step 2", "Epoch 2", "step 1", "step 2"]
    assert _found(finder, *headed) == [None, 1, 2, None, 3, 4]


def test_a_process_that_goes_on_within_an_epoch_goes_on_with_its_count() -> None:
    epochs = EpochCount()
    first = StepFinder(own_patterns(None), epochs)
    _found(first, *(f"epoch {epoch} step {step}" for epoch in range(3) for step in range(100)))
    again = StepFinder(own_patterns(None), epochs)
    lines = [f"epoch 2 step {step}" for step in (50, 51)]
    assert _found(again, *lines, "epoch 3 step 0") == [250, 251, 300]
    anew = StepFinder(own_patterns(None), epochs)
    assert _found(anew, "epoch 0 step 0", "epoch 0 step 1", "epoch 1 step 0") == [0, 1, 100]


def test_steps_that_are_counted_through_are_what_they_say_in_each_epoch() -> None:
    epochs = EpochCount()
    told = ["epoch 1 step 98", "epoch 1 step 99", "epoch 2 step 100", "epoch 2 step 150"]
    assert _found(StepFinder(own_patterns(None), epochs), *told) == [98, 99, 100, 150]
    assert _found(StepFinder(own_patterns(None), epochs), "epoch 2 step 120") == [120]


def test_an_evaluation_within_an_epoch_and_a_share_of_the_data_begin_nothing_anew() -> None:
    finder = StepFinder(own_patterns(None))
    told = ["epoch 1 step 7", "epoch 1 eval step 1", "epoch 1 step 8", "{'epoch': 1.25, 'step': 9}"]
    assert _found(finder, *told) == [7, None, 8, 9]


def _bar(title: str, step: int, total: int) -> str:
    return f"{title}:  12%|█▏   | {step}/{total} [00:01<00:09,  9.0it/s]"


@pytest.mark.parametrize("title", ["train", "Epoch {}", "epoch {}/3 training"])
def test_a_bar_that_begins_anew_is_the_next_epoch(title: str) -> None:
    told = [_bar(title.format(epoch), step, 2) for epoch in range(3) for step in (0, 1, 2)]
    assert _found(StepFinder(own_patterns(None)), *told) == [None, 1, 2, None, 3, 4, None, 5, 6]


def _drawn(done: int, total: int, first: int = 0) -> str:
    """Return what tqdm draws."""
    rate = "?it/s" if done == first else "9.00it/s"
    return f"train:  12%|█▏   | {done}/{total} [00:01<00:09, {rate}]"


def test_a_bar_of_120_steps_counts_120_and_its_last_is_120() -> None:
    told = _found(StepFinder(own_patterns(None)), *(_drawn(done, 120) for done in range(121)))
    steps = [step for step in told if step is not None]
    assert (len(steps), steps[0], steps[-1]) == (120, 1, 120)


def test_a_bar_that_goes_on_in_the_middle_begins_with_the_step_after() -> None:
    lines = [_drawn(done, 120, first=50) for done in range(50, 121)]
    told = _found(StepFinder(own_patterns(None)), *lines)
    assert told == [None, *range(51, 121)]


def test_of_bars_that_are_drawn_now_and_then_no_step_is_counted_twice_or_left_out() -> None:
    lines = [_drawn(done, 100) for _ in range(3) for done in (0, 37, 74, 100)]
    told = _found(StepFinder(own_patterns(None)), *lines)
    assert told == [None, 37, 74, 100, None, 137, 174, 200, None, 237, 274, 300]
    lines = [_drawn(done, 100) for _ in range(2) for done in (37, 74, 100)]  # a pipe was slow
    assert _found(StepFinder(own_patterns(None)), *lines) == [37, 74, 100, 137, 174, 200]


def test_a_pattern_of_ones_own_with_a_total_is_no_bar() -> None:
    finder = StepFinder(own_patterns([r"batch (?P<step>\d+) of (?P<total>\d+)"]))
    assert _found(finder, "batch 0 of 9", "batch 1 of 9") == [0, 1]


def test_bars_of_other_work_count_nothing() -> None:
    finder = StepFinder(own_patterns(None))
    told = [_bar("Loading checkpoint shards", 1, 2), _bar("train", 7, 9), _bar("Validating", 8, 9)]
    assert _found(finder, *told, _bar("train", 8, 9)) == [None, 7, None, 8]


def test_an_evaluation_that_is_drawn_as_a_bar_without_a_title_counts_nothing() -> None:
    finder = StepFinder(own_patterns(None))
    lines = [_bar("", 500, 1000), _bar("", 1, 50), _bar("", 50, 50), _bar("", 501, 1000)]
    told = [line.removeprefix(":") for line in [*lines, _bar("", 1000, 1000), _bar("", 9, 50)]]
    assert _found(finder, *told) == [500, None, None, 501, 1000, None]


def test_the_longer_bar_after_a_short_one_has_ended_is_the_training() -> None:
    told = [
        _bar("Warming", 2, 3),
        _bar("first pass", 3, 3),
        _bar("main", 1, 90),
        _bar("main", 2, 90),
    ]
    assert _found(StepFinder(own_patterns(None)), *told) == [None, 3, 4, 5]
