"""A judge in a process of its own: what it prints, or why it could not judge, in a sentence."""

import asyncio
import json
from pathlib import Path

import pytest

from everstep_controller.inspection.judge_process import JudgeError, ask_judge

pytestmark = pytest.mark.timeout(120)


def _judge(module: str, file: str, deadline_s: float = 60.0) -> object:
    """Run a program of Python's own in the place of a judge."""
    judging = ask_judge((module, file), json.loads, deadline_s=deadline_s)
    return asyncio.run(judging)


def test_what_it_prints_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"found": [1]}')
    assert _judge("json.tool", str(tmp_path / "file")) == {"found": [1]}


@pytest.mark.parametrize(
    ("module", "file", "said"),
    [
        ("json.tool", "/nowhere", "the judge exited [12]: .*No such file"),
        ("no_such_judge", "/nowhere", "the judge exited 1: .*No module named no_such_judge"),
        ("timeit", "import os; os.kill(os.getpid(), 9)", "the judge was killed by signal 9"),
        # All of its process group: none but the judge is in it.
        ("timeit", "import os; os.kill(0, 15)", "the judge was killed by signal 15"),
        (
            "timeit",
            "raise PermissionError(1, 'refused')",
            r"exited 1: PermissionError: \[Errno 1\]",
        ),
        ("timeit", "pass", "the judge's answer cannot be read: JSONDecodeError"),
    ],
)
def test_one_that_fails_is_an_error_in_a_sentence(module: str, file: str, said: str) -> None:
    with pytest.raises(JudgeError, match=said):
        _judge(module, file)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"no verdict within 0\.2 s"):
        _judge("timeit", "import time; time.sleep(600)", deadline_s=0.2)
