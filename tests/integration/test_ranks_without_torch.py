"""Ranks that import no torch, as a launcher sees them: one that holds the GIL is named, alone."""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from everstep.launch.inspection.look_service import LookService
from everstep.launch.inspection.question import Answer
from everstep.launch.inspection.rank_files import RankFiles
from everstep.launch.inspection.rank_watch import RankWatch
from everstep_common.codec import json_text
from everstep_common.hangs.looks import Look, judge_told
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.verdict import HangClass

pytestmark = pytest.mark.timeout(180)

_SCRIPT = Path(__file__).with_name("hung_socket_job.py")
_RANKS = 3
_CULPRIT = 1
# A lock that is held is seen after 2.5 s and a look, on a busy machine much later.
_SEEN_S = 120.0
# An evaluation is looked at after so long.
_STANDS_S = 5.0


class _Launcher:
    """What a launcher has for its ranks: their folder, their pages, and looks at them."""

    def __init__(self, files: RankFiles, how: str, *prefix: str) -> None:
        self._selector = selectors.DefaultSelector()
        self.ranks: dict[int, subprocess.Popen[str]] = {}
        self.watch = RankWatch(lambda _: None, self.pids)
        self._looks = LookService(self._selector, files.folder, self.pids, self.watch.facts)
        self.watch.begin(1, range(_RANKS), _RANKS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        for rank in range(_RANKS):
            known = {"PATH": os.environ["PATH"], **files.environment({})}
            self.ranks[rank] = subprocess.Popen(
                [*prefix, sys.executable, str(_SCRIPT), str(rank), str(port), how],
                env={**known, **self.watch.environment(rank)},
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        for one in self.ranks.values():
            assert one.stdout is not None
            assert one.stdout.readline() == "steps\n"

    def pids(self) -> dict[int, int]:
        return {rank: one.pid for rank, one in self.ranks.items()}

    def live(self, seconds: float, *, until_silent: bool = False) -> None:
        """Watch the ranks, as a launcher does in its loop."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            if until_silent and self.watch.facts(_CULPRIT).waits_for_gil:
                return
            self._wait(min(left_s, 0.2))

    def look(self) -> Look:
        """Look until all ranks could be read: on a busy machine a reader may be too late."""
        ends_s = time.monotonic() + _SEEN_S
        while (look := self._look()).verdict.blind and time.monotonic() < ends_s:
            self.live(1.0)
        return look

    def _look(self) -> Look:
        found: list[Sequence[Answer]] = []
        self._looks.ask(found.append)
        while not found:
            self._wait(0.2)
        texts = tuple(json_text(one.report) for one in found[0])
        return judge_told([NodeTold("n0", 0, _RANKS, texts)])

    def _wait(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()
        self._looks.advance()
        self.watch.advance({})

    def close(self) -> None:
        self._looks.close()
        for one in self.ranks.values():
            os.killpg(one.pid, 9)
            one.communicate()
        self.watch.end()
        self._selector.close()


@pytest.fixture
def files() -> Iterator[RankFiles]:
    with tempfile.TemporaryDirectory(prefix="es") as folder:
        made = RankFiles.make(folder)
        yield made
        made.remove()


@pytest.mark.parametrize(
    ("how", "stuck", "works"),
    [("sleep", True, False), ("loop", False, False), ("build", False, True)],
)
def test_a_rank_that_keeps_the_lock_is_named_and_what_it_does_with_it(
    files: RankFiles, how: str, stuck: bool, works: bool
) -> None:
    launcher = _Launcher(files, how)
    try:
        launcher.live(_SEEN_S, until_silent=True)
        launcher.look()
        launcher.live(1.0)
        look = launcher.look()
    finally:
        launcher.close()
    assert [one.rank for one in look.verdict.culprits] == [_CULPRIT], look.verdict
    assert look.verdict.kind is HangClass.GIL_HELD
    assert look.stuck == ((_CULPRIT,) if stuck else ())
    assert look.works is works
    assert look.held_ms >= 2500


def test_so_is_one_that_a_shell_script_starts(files: RankFiles) -> None:
    launcher = _Launcher(files, "sleep", "sh", "-c", '"$@"; exit $?', "sh")
    try:
        launcher.live(_SEEN_S, until_silent=True)
        look = launcher.look()
    finally:
        launcher.close()
    assert [one.rank for one in look.verdict.culprits] == [_CULPRIT], look.verdict
    assert look.stuck == (_CULPRIT,)


@pytest.mark.parametrize("how", ["evaluate", "compute", "child"])
def test_nobody_is_named_while_one_evaluates_computes_or_waits_for_a_program(
    files: RankFiles, how: str
) -> None:
    launcher = _Launcher(files, how)
    try:
        launcher.live(_STANDS_S)
        look = launcher.look()
    finally:
        launcher.close()
    assert look.verdict.culprits == ()
    assert (look.stuck, look.held_ms) == ((), 0)
