"""The thread by which a rank knows how far its collectives are: where it is, and where not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep.launch.inspection.rank_pages import Frontier, RankFacts, RankPages
from everstep.rank import interpreter
from everstep_common.clock import boot_ns
from fakes.waits import wait_until

pytestmark = pytest.mark.timeout(120)
_SCRIPT = Path(__file__).with_name("frontier_rank.py")
_FOLDER = str(Path(interpreter.__file__).parent)


def run(tmp_path: Path, how: str, pages: RankPages | None) -> list[str]:
    """Return what a rank says, which knows nothing of Everstep's packages."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": _FOLDER}
    environ |= {"EVERSTEP_RANK_FILES": str(tmp_path), **(pages.environment(0) if pages else {})}
    line = [sys.executable, str(_SCRIPT), how]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def frontier(pages: RankPages) -> Frontier:
    found = pages.read(0, boot_ns()).frontier
    assert found is not None
    return found


def wait_for(pages: RankPages, told: Callable[[RankFacts], bool]) -> RankFacts:
    """Return what a rank tells once it is that."""

    def facts() -> RankFacts | None:
        read = pages.read(0, boot_ns())
        return read if told(read) else None

    return wait_until(facts)


def test_it_begins_with_the_first_process_group_and_ends_with_the_process(tmp_path: Path) -> None:
    pages = RankPages([0])
    assert run(tmp_path, "end", pages) == ["before False", "group True"]
    assert frontier(pages).moves >= 3
    assert pages.read(0, boot_ns()).is_over


def test_a_rank_tells_that_it_has_left_its_groups_and_then_that_its_script_is_over(
    tmp_path: Path,
) -> None:
    pages = RankPages([0])
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": _FOLDER}
    environ |= {"EVERSTEP_RANK_FILES": str(tmp_path), **pages.environment(0)}
    line = [sys.executable, str(_SCRIPT), "leave"]
    with subprocess.Popen(line, env=environ, stdin=subprocess.PIPE, text=True) as rank:
        assert rank.stdin is not None
        assert not wait_for(pages, lambda one: one.is_leaving).is_over
        rank.stdin.write("go on\n")
        rank.stdin.flush()
        wait_for(pages, lambda one: one.is_over)  # while a thread of the script still runs
        rank.stdin.write("end\n")
    assert rank.returncode == 0


def test_a_forked_child_has_none_and_ends(tmp_path: Path) -> None:
    pages = RankPages([0])
    said = run(tmp_path, "fork", pages)
    assert said[-2:] == ["child False", "ended 0"]


def test_a_process_that_begins_anew_takes_its_own_page_again(tmp_path: Path) -> None:
    pages = RankPages([0])
    said = run(tmp_path, "exec", pages)
    assert said.count("group True") == 2
    # What the program before has counted is not this one's.
    assert 3 <= frontier(pages).moves <= 7


def test_without_a_launcher_there_is_none(tmp_path: Path) -> None:
    assert run(tmp_path, "end", None) == ["before False", "group False"]
