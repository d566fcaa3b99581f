"""Stacks as text: of faulthandler and of py-spy, names and lines, never values."""

import json
import os
from pathlib import Path

import pytest

from everstep.launch.inspection.sources.python_stacks import (
    frame_text,
    main_stack,
    py_spy_stack,
    remove_unanswered,
)

_DUMP = """\
Current thread 0x00007f0c937fe6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f0cb0000000 [loader] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Thread 0x00007f0cbbe8db80 (most recent call first):
  File "/home/me/train.py", line 19 in forward
  File "/home/me/train.py", line 23 in <module>
"""


def test_the_main_thread_is_the_one_that_was_there_first() -> None:
    assert main_stack(_DUMP) == ("train.py:19 forward", "train.py:23 <module>")


def test_of_two_dumps_in_a_file_the_newest_counts() -> None:
    newer = _DUMP.replace("line 19", "line 20")
    assert main_stack(_DUMP + newer)[0] == "train.py:20 forward"


@pytest.mark.parametrize("text", ["", "\0" * 100, "Thread", '  File "x", line', "Fatal error"])
def test_what_is_no_stack_is_none(text: str) -> None:
    assert main_stack(text) == ()


def test_what_a_script_writes_between_its_frames_is_not_shown() -> None:
    dump = _DUMP.replace("  File", "token=sesame\n  File")
    assert not any("sesame" in frame for frame in main_stack(dump))


def test_frames_and_their_number_are_bounded() -> None:
    deep = "Thread 0x1 (most recent call first):\n" + '  File "a.py", line 1 in f\n' * 1000
    assert len(main_stack(deep)) == 24
    assert len(frame_text("/x/" + "y" * 500, 1, "f")) == 120
    assert frame_text("/x/\x1b[2J.py", 1, "f") == "\\x1b[2J.py:1 f"


def _thread(thread: int, name: str, **more: object) -> dict[str, object]:
    frame = {"name": name, "filename": "/home/me/train.py", "line": 4, "locals": None, **more}
    return {"pid": 77, "os_thread_id": thread, "frames": [frame]}


def test_the_main_thread_of_py_spy_is_the_process() -> None:
    threads = [_thread(78, "wait"), _thread(77, "forward", locals=[{"repr": "sesame"}])]
    assert py_spy_stack(json.dumps(threads)) == ("train.py:4 forward",)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "null",
        "[]",
        "[{}]",
        "[" * 5000,
        '[{"os_thread_id": 1, "pid": 1}]',
        '[{"os_thread_id": 1, "pid": 1, "frames": [{"filename": "", "line": Infinity}]}]',
        '[{"os_thread_id": 1, "pid": 1, "frames": [{"line": Infinity, "filename": 1, "name": 2}]}]',
    ],
)
def test_an_answer_of_py_spy_that_is_none_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"py-spy|Expecting|line 1"):
        py_spy_stack(answer)


def test_what_torch_would_leave_of_a_question_that_it_cannot_answer_is_removed(
    tmp_path: Path,
) -> None:
    left, other = tmp_path / "torch-dump_tracebackQx1_9z", tmp_path / "torch-dump_traceback.py"
    left.touch()
    other.touch()
    opened = [os.open(path, os.O_RDONLY) for path in (left, left, other)]
    try:
        remove_unanswered(os.getpid())
    finally:
        for one in opened:
            os.close(one)
    assert [path.name for path in tmp_path.iterdir()] == [other.name]
    remove_unanswered(2**22 + 1)  # it is gone
