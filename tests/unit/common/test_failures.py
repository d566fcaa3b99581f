"""How the last lines of a dead process are read: texts of CPython 3.11, torch 2.13 and kernels."""

import pytest

from everstep_common.failures.classification import KINDS, Failure, Side, classify, last_error, side
from everstep_common.failures.texts import unvarying
from everstep_common.failures.tracebacks import LINE_CHARACTERS_MAX, last_chain

_HEAD = "Traceback (most recent call last):"
_FRAME = '  File "/job/train.py", line 7, in <module>'
_BECAUSE = "The above exception was the direct cause of the following exception:"
_WHILE = "During handling of the above exception, another exception occurred:"
_GLOO = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read "
    "error [127.0.0.1]:9364: Connection reset by peer. This is typically caused by a remote worker"
)


def _raised(line: str) -> list[str]:
    return [_HEAD, _FRAME, "    work.wait()", "         ^^^^^^^^^^", line]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ValueError: bad batch 17", "exception"),
        ("KeyError: 'loss'", "exception"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda"),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", "cuda"),
        ("RuntimeError: CUDA error: device-side assert triggered", "assertion"),
        ("AssertionError", "assertion"),
        ("AssertionError: shapes differ", "assertion"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "device_memory",
        ),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "device"),
        ("RuntimeError: No CUDA GPUs are available: no CUDA-capable device is detected", "device"),
        (_GLOO, "collective"),
        ("torch.distributed.DistBackendError: NCCL error in: ncclRemoteError", "collective"),
        ("torch.distributed.DistNetworkError: The client socket has timed out", "collective"),
        ("torch.distributed.DistBackendError: NCCL error: unhandled cuda error", "cuda"),
        ("MemoryError", "host_memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "host_memory"),
        ("OSError: [Errno 28] No space left on device: '/data/x'", "storage"),
        ("OSError: [Errno 116] Stale file handle", "storage"),
        ("OSError: [Errno 5] Input/output error", "storage"),
        ("requests.exceptions.ConnectionError: Max retries exceeded", "network"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "network"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "import"),
        ("everstep.loss.BadStepError: step 17: the loss is nan", "nan"),
        ("RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.", "nan"),
        ("RuntimeError: DataLoader worker (pid 85) is killed by signal: Killed. ", "killed"),
        ("RuntimeError: DataLoader worker (pid 85) is killed by signal: Bus error. ", "crash"),
    ],
)
def test_an_exception_tells_its_kind(line: str, kind: str) -> None:
    assert classify(1, 0, _raised(line)) == Failure(kind, line.rstrip())


@pytest.mark.parametrize(
    ("signal", "lines", "kind"),
    [
        (9, [], "killed"),
        (9, _raised("ValueError: an old one"), "killed"),
        (9, ["[W] NCCL error: remote process exited"], "killed"),
        (15, [], "killed"),
        (11, [], "crash"),
        (6, ["python: malloc.c:2617: sysmalloc: Assertion failed"], "crash"),
        (
            6,
            [
                "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
                "Exception raised from run at ProcessGroupNCCL.cpp:2055 (most recent call first):",
            ],
            "collective_timeout",
        ),
        (
            6,
            ["[PG ID 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without"],
            "collective_timeout",
        ),
        (
            6,
            ["[rank1] Watchdog caught collective operation timeout: WorkNCCL"],
            "collective_timeout",
        ),
        (
            6,
            [
                "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                "  what():  [enforce fail at /x/gloo/transport/tcp/pair.cc:456] "
                "op.preamble.length <= op.nbytes. 2000 vs 1000. Received data size doesn't match "
                "expected size. Is there a distributed collective mismatch in your code?",
                "Exception raised from run at ProcessGroupGloo.cpp:2055 (most recent call first):",
            ],
            "collective_mismatch",
        ),
        (6, ["CUDA error: an illegal memory access was encountered"], "cuda"),
        (7, ["ERROR: worker is out of shared memory."], "host_memory"),
        (
            9,
            ["Memory cgroup out of memory: Killed process 911 (python) total-vm:1kB"],
            "host_memory",
        ),
        (9, ["slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."], "host_memory"),
        (9, ["oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)"], "host_memory"),
    ],
)
def test_a_signal_is_explained_by_what_was_said(signal: int, lines: list[str], kind: str) -> None:
    assert classify(-signal, signal, lines).kind == kind


_NO_DEVICE_MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 9.77 GiB"


def test_a_shells_137_is_the_programs_own_only_by_its_own_words() -> None:
    own = [*_raised(_NO_DEVICE_MEMORY), "Killed"]
    assert classify(137, 0, own) == Failure("device_memory", _NO_DEVICE_MEMORY)
    assert classify(137, 0, ["epoch 3", "Killed"]).kind == "killed"
    assert classify(137, 0, _raised("ValueError: an old one")).kind == "killed"
    host = "Memory cgroup out of memory: Killed process 911 (python)"
    assert classify(137, 0, [*own, host]).kind == "host_memory"
    assert classify(-9, 9, own).kind == "killed"  # somebody's signal, whatever it had said before


def test_a_program_that_cannot_be_started_or_misread_its_options_is_usage() -> None:
    said = "python: can't open file '/job/nofile.py': [Errno 2] No such file or directory"
    assert classify(2, 0, [said]) == Failure("usage", said)
    assert classify(2, 0, ["usage: x [-h]", "x: error: --lr: invalid float"]).kind == "usage"
    missing = "/usr/bin/python3.11: No module named nothing"
    assert classify(1, 0, [missing, ""]) == Failure("import", missing)


_BARS = (
    "28%|██▊       | 84/300 [00:30<01:19,  2.73it/s]",
    "train: 28%|##7  | 84/300 [00:30<01:19,  2.73it/s, loss=1.2]",
    "84it [00:30,  2.73it/s]",
    "Epoch 0/9 ━━━━━━━━╸━━━━━━━ 84/300 0:00:30 • 0:01:19 2.73it/s",
    "84/300 [=====>..............] - ETA: 1:19 - loss: 1.2",
    "\x1b[32m28%|██▊       | 84/300\x1b[0m",
)


def _last_error(code: int, *lines: str) -> str:
    exit_code, signal = max(code, 0), max(-code, 0)
    return last_error(exit_code, signal, classify(exit_code, signal, lines).kind, lines)


@pytest.mark.parametrize("bar", _BARS)
def test_a_progress_bar_is_never_quoted_as_the_reason(bar: str) -> None:
    for code in (-9, -11, -6, 1, 2, 137):
        assert _last_error(code, bar) == ""
    assert _last_error(1, "no data in /data", bar) == "no data in /data"


def test_what_is_said_behind_a_progress_bar_is_quoted_without_it() -> None:
    assert _last_error(3, f"{_BARS[0]}no data in /data") == "no data in /data"


@pytest.mark.parametrize(
    ("code", "lines", "quoted"),
    [
        (-9, ("epoch 3 is over",), ""),
        (-15, ("UserWarning: old",), ""),
        (-9, ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "bye"), "oom_kill"),
        (-11, ("epoch 3 is over",), ""),
        (-11, ("Fatal Python error: Segmentation fault", "epoch 3"), "Fatal Python error"),
        (-6, ("free(): invalid pointer",), "free(): invalid pointer"),
        (-6, ("[rank1] Watchdog caught collective operation timeout: X", "frame #0"), "Watchdog"),
        (1, ("no data in /data", "INFO:root:the end"), "no data in /data"),
        (1, ("2026-11-29 19:00:01,5 - x - INFO - epoch 3",), ""),
        (1, ("the loss is nan", "epoch 3"), "the loss is nan"),
        (1, ("the last words",), "the last words"),
    ],
)
def test_only_a_line_is_quoted_that_explains_how_the_process_died(
    code: int, lines: tuple[str, ...], quoted: str
) -> None:
    told = _last_error(code, *lines)
    assert told.startswith(quoted) or quoted in told
    assert bool(told) is bool(quoted)


def test_an_exit_without_a_word_is_only_an_exit() -> None:
    assert classify(3, 0, ["epoch 1", "epoch 2"]) == Failure("exit", "")
    assert classify(1, 0, []) == Failure("exit", "")


def test_the_last_exception_is_quoted_and_its_causes_tell_the_kind() -> None:
    lines = [*_raised(_GLOO), "", _BECAUSE, "", *_raised("RuntimeError: training failed")]
    assert classify(1, 0, lines) == Failure("collective", "RuntimeError: training failed")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", "killed"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. ", "crash"),
        ("_queue.Empty", "crash"),
    ],
)
def test_how_a_worker_ended_is_told_by_the_signal_where_it_was_seen(cause: str, kind: str) -> None:
    gone = "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    lines = [*_raised(cause), "", _BECAUSE, "", *_raised(gone)]
    assert classify(1, 0, lines) == Failure(kind, gone)


def test_an_older_traceback_that_was_lived_through_says_nothing() -> None:
    lines = [*_raised(_GLOO), "retrying", *_raised("ValueError: bad batch 17")]
    assert classify(1, 0, lines) == Failure("exception", "ValueError: bad batch 17")


def test_an_exception_during_the_handling_of_another_is_chained() -> None:
    lines = [*_raised("KeyError: 1"), "", _WHILE, "", *_raised("ValueError: 2")]
    assert last_chain(lines) == ("KeyError: 1", "ValueError: 2")


def test_the_prefix_that_torch_puts_before_each_line_is_no_part_of_the_exception() -> None:
    lines = [f"[rank0]: {line}" for line in _raised("ValueError: bad batch 17")]
    assert classify(1, 0, lines).exception == "ValueError: bad batch 17"


def test_the_margin_of_an_exception_group_is_no_part_of_the_exception() -> None:
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "<string>", line 5, in <module>',
        "  | ExceptionGroup: many (2 sub-exceptions)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "<string>", line 3, in <module>',
        "    | ZeroDivisionError: division by zero",
        "    +------------------------------------",
    ]
    assert last_chain(lines)[-1] == "ZeroDivisionError: division by zero"


def test_a_traceback_whose_head_scrolled_away_still_names_its_exception() -> None:
    lines = [_FRAME, "    deep()", "torch.distributed.DistStoreError: timed out"]
    assert classify(1, 0, lines).exception == "torch.distributed.DistStoreError: timed out"


def test_a_syntax_error_has_no_head_at_all() -> None:
    lines = ['  File "s.py", line 1', "    def", "       ^", "SyntaxError: invalid syntax"]
    assert classify(1, 0, lines) == Failure("import", "SyntaxError: invalid syntax")


def test_what_follows_the_exception_is_not_the_exception() -> None:
    lines = [
        *_raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
        "CUDA kernel errors might be asynchronously reported at some other API call.",
        "[W socket.cpp:464] [c10d] closing",
    ]
    assert classify(1, 0, lines).exception.endswith("was encountered")


def test_an_exception_of_the_native_code_is_quoted_with_its_type() -> None:
    lines = [
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: unspecified launch failure",
        "Exception raised from record at ../c10/cuda/CUDAEvent.h:115",
    ]
    told = Failure("cuda", "c10::Error: CUDA error: unspecified launch failure")
    assert classify(-6, 6, lines) == told


def test_colours_are_taken_out_and_lengths_are_bounded() -> None:
    coloured = "\x1b[1;31mValueError\x1b[0m: \x1b[35mbad batch 17\x1b[0m"
    assert classify(1, 0, _raised(coloured)).exception == "ValueError: bad batch 17"
    long = classify(1, 0, _raised("ValueError: " + "x" * 1_000_000))
    assert len(long.exception) == LINE_CHARACTERS_MAX


def test_every_kind_of_the_table_is_somebodys() -> None:
    assert {side(kind) for kind in KINDS} == set(Side)
    assert side("a kind of tomorrow") is Side.UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: The loss returned in `training_step` is nan or inf.",
        "FloatingPointError: Loss became infinite or NaN at iteration=412!",
        "RuntimeError: NaN detected in the gradients of layer 3",
        "RuntimeError: loss became nan",
        "SystemError: Loss: nan",
        "RuntimeError: train_loss=nan at step 7",
        "Exception: Loss is NaN, stopping training",
        "RuntimeError: detected NaN in grad norm",
        "ValueError: NaN loss encountered",
    ],
)
def test_a_bad_loss_in_whatever_words_is_one(line: str) -> None:
    assert classify(1, 0, _raised(line)).kind == "nan"


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: cannot convert float NaN to integer",
        "ValueError: Input contains NaN.",
        "KeyError: 'loss'",
        "ValueError: unknown loss: nanmean",
        "TypeError: loss is informative",
    ],
)
def test_other_words_of_numbers_are_no_bad_loss(line: str) -> None:
    assert classify(1, 0, _raised(line)).kind == "exception"


@pytest.mark.parametrize(
    ("once", "again"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file: '/tmp/tmpab12/x.bin'",
            "FileNotFoundError: [Errno 2] No such file: '/tmp/tmpzz9_/x.bin'",
        ),
        ("ValueError: rank 3 has no data", "ValueError: rank 11 has no data"),
        ("ValueError: [Rank 3] has no data", "ValueError: [Rank 0] has no data"),
        (
            "RuntimeError: at 2026-11-21 15:42:37,123 bad",
            "RuntimeError: at 2026-11-21T16:01:02.5Z bad",
        ),
        ("OSError: 10.0.0.1:29500 is in use", "OSError: 10.0.0.2:41234 is in use"),
        ("OSError: (10.0.0.1, 29500) is in use", "OSError: (10.0.0.9, 1) is in use"),
        ("OSError: [node-1]:29500 is in use", "OSError: [node-1]:29501 is in use"),
        ("OSError: port 29500 is in use", "OSError: port 29501 is in use"),
        ("ValueError: <T object at 0x7f12>", "ValueError: <T object at 0x7fab>"),
        (
            "KeyError: '9f1c2a34-1b2c-4d5e-8f90-0123456789ab'",
            "KeyError: '00000000-1b2c-4d5e-8f90-0123456789ab'",
        ),
    ],
)
def test_the_same_exception_is_recognised_whatever_varies(once: str, again: str) -> None:
    assert unvarying("exception", once) == unvarying("exception", again)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: bad batch 17", "ValueError: bad batch 18"),
        ("FileNotFoundError: '/data/a'", "FileNotFoundError: '/data/b'"),
        ("KeyError: 'a'", "KeyError: 'b'"),
        ("ValueError: shape 3", "ValueError: shape 4"),
    ],
)
def test_what_tells_exceptions_apart_is_kept(one: str, other: str) -> None:
    assert unvarying("exception", one) != unvarying("exception", other)


# As torch 2.11 wrote it on a node with a GPU: the main thread sees the abort only.
_ABORTED = [
    "[rank0]: Traceback (most recent call last):",
    '[rank0]:   File "/train.py", line 51, in main',
    "[rank0]:     dist.all_reduce(data)",
    "[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0. ",
]
_GAVE_UP = (
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated"
    " with exception: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=452)",
)


def test_a_rank_whose_operation_the_watchdog_aborted_for_a_timeout_gave_up_waiting() -> None:
    lines = [*_ABORTED, *_GAVE_UP]
    told = classify(0, 6, lines, _ABORTED)
    assert told.kind == "collective_timeout"
    assert "was aborted on rank 0" in told.exception


def test_a_rank_whose_operation_was_aborted_for_a_peer_s_error_followed_another() -> None:
    lines = [*_ABORTED, "[rank0]: NCCL error: remote process exited or there was a network error"]
    assert classify(0, 6, lines, _ABORTED).kind == "collective"
