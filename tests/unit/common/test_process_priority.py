"""A helper process lowers its own priority, and says what of that was refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_common.process_priority import give_way, raise_oom_score


@pytest.mark.parametrize(("before", "after"), [(-900, 0), (0, 0), (500, 500)])
def test_a_score_is_raised_and_never_lowered(tmp_path: Path, before: int, after: int) -> None:
    (tmp_path / "oom_score_adj").write_text(f"{before}\n")
    raise_oom_score(0, tmp_path)
    assert int((tmp_path / "oom_score_adj").read_text()) == after


def test_a_process_gives_way_in_both(tmp_path: Path) -> None:
    (tmp_path / "oom_score_adj").write_text("-900\n")
    program = (
        "import os, sys; from pathlib import Path; "
        "from everstep_common.process_priority import give_way; "
        "print(*give_way(3, 900, Path(sys.argv[1])), os.nice(0))"
    )
    path = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, **path}, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == min(os.nice(0) + 3, 19)
    assert (tmp_path / "oom_score_adj").read_text() == "900"


def test_what_is_refused_is_told_in_a_sentence(tmp_path: Path) -> None:
    (told,) = give_way(0, 900, tmp_path)
    assert told.startswith("its oom_score_adj was not raised to 900: ")
