"""Ranks of live jobs that hang: a process that has torch imported, and forks ranks as it is told.

    hang_live_rank.py        lines of JSON on standard input; lines on standard output:
                             "started RANK PID", "ended PID STATUS"

A rank trains the steps of its layout for ever. In the job's folder ``fault-N.json`` tells what goes
wrong next, and in which rank; that rank leaves ``began-N`` just before, and goes on when
``release-N`` is there.
"""

import ctypes
import json
import mmap
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from hangs.programs import (
    PROGRESS,
    SAVED,
    WORLD,
    Call,
    Fault,
    Layout,
    Start,
    changed,
    layout,
    phase_name,
)
from torch.nn.parallel import DistributedDataParallel

from everstep.rank.declared import DeclaredProgress, page_of_process
from everstep.rank.interpreter.everstep_rank_page import PLACE
from everstep_common.clock import boot_ns

# What a rank's code does when it holds the others back, and goes on when it is let.
_POLL_S = 0.05
_PAGE = bytes(256 * 1024)


def main() -> None:
    """Fork ranks until standard input ends; then end them all."""
    torch.set_num_threads(1)
    pids: set[int] = set()
    while True:
        ready, _, _ = select.select([0], [], [], _POLL_S)
        if ready:
            line = sys.stdin.buffer.readline()
            if not line:
                break
            start = Start(**json.loads(line))
            if (pid := os.fork()) == 0:
                _run(start)
            pids.add(pid)
            print(f"started {start.rank} {pid}", flush=True)
        while pids and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pids.discard(ended[0])
            print(f"ended {ended[0]} {ended[1]}", flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _run(start: Start) -> None:
    """Be a rank, in a process of its own, which ends here."""
    try:
        with open(Path(start.folder) / f"stderr-{start.rank}", "wb") as said:
            os.dup2(said.fileno(), 2)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.environ["RANK"] = str(start.rank)
        os.environ["LOCAL_WORLD_SIZE"] = str(start.ranks)
        os.environ[PLACE] = start.page
        Rank(start).train()
    except Exception:
        if start.exits:
            raise  # it ends as an interpreter does, and leaves its dump
        traceback.print_exc()
        sys.stderr.flush()
        while True:
            time.sleep(1)


class Rank:
    """One rank: its groups, its tensors, and what it does next."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._folder = Path(start.folder)
        self._rank = start.rank
        self._layout: Layout = layout(start.layout, start.ranks, start.seed)
        self._groups: dict[str, dist.ProcessGroup] = {}
        self._pending: list[dist.Work] = []
        self._ddp: DistributedDataParallel | None = None
        self._next_fault = 0
        self._phase = 0
        self._declared = DeclaredProgress(page_of_process(os.environ), lambda _: None)
        with open(self._folder / "progress", "r+b") as file:
            self._progress = mmap.mmap(file.fileno(), 0)

    def train(self) -> None:
        """Train for ever."""
        warnings.simplefilter("ignore")
        dist.init_process_group(
            "gloo",
            init_method=f"file://{self._folder}/store",
            rank=self._rank,
            world_size=self._start.ranks,
        )
        for description, groups in self._layout.groups:
            for members in groups:
                if len(members) > 1:
                    group = dist.new_group(list(members), group_desc=description)
                    if self._rank in members:
                        assert isinstance(group, dist.ProcessGroup)
                        self._groups[description] = group
        step = 0
        while True:
            step += 1
            self._enter_phase()
            self._train_step(step)
            self._declared.complete_step(step, boot_ns())

    def _enter_phase(self) -> None:
        phase, _ = PROGRESS.unpack_from(self._progress, self._start.ranks * PROGRESS.size)
        if phase != self._phase:
            self._phase = phase
            self._declared.enter_phase(phase_name(phase))

    def _train_step(self, step: int) -> None:
        calls: Sequence[Call] = self._layout.steps[self._rank]
        fault = self._new_fault()
        hold: tuple[int, Callable[[], None]] | None = None
        if fault is not None:
            if fault.kind in _HOLDS:
                hold = self._hold(fault, len(calls))
            else:
                calls = changed(calls, fault.kind, fault.place) or calls
                self._begin(fault)
        for number, call in enumerate(calls):
            self._mark(step, number)
            if hold is not None and hold[0] == number:
                hold[1]()
            self._do(call)
        self._mark(step, len(calls))
        if hold is not None and hold[0] == len(calls):
            hold[1]()

    def _mark(self, step: int, call: int) -> None:
        PROGRESS.pack_into(self._progress, self._rank * PROGRESS.size, step, call)

    # What it calls.

    def _do(self, call: Call) -> None:
        if call.name == "compute":
            time.sleep(call.seconds)
        elif call.name == "wait":
            for one in self._pending:
                one.wait()
            self._pending.clear()
        elif call.name == "ddp":
            self._back_propagate(call.size)
        elif call.peer >= 0:
            self._transfer(call)
        else:
            self._collect(call)

    def _group(self, call: Call) -> dist.ProcessGroup | None:
        return None if call.group == WORLD else self._groups[call.group]

    def _transfer(self, call: Call) -> None:
        group, data = self._group(call), torch.ones(call.size)
        if call.is_async:
            work = (dist.isend if call.name == "send" else dist.irecv)(data, call.peer, group)
            assert work is not None
            if call.name == "send":
                self._pending.append(work)
            else:
                work.wait()
        elif call.name == "send":
            dist.send(data, call.peer, group)
        else:
            dist.recv(data, call.peer, group)

    def _collect(self, call: Call) -> None:
        group = self._group(call)
        size = dist.get_world_size(group)
        small, large = torch.ones(call.size), torch.ones(call.size * size)
        if call.name == "all_reduce":
            work = dist.all_reduce(small, group=group, async_op=call.is_async)
            if work is not None:
                self._pending.append(work)
        elif call.name == "broadcast":
            dist.broadcast(small, group_src=0, group=group)
        elif call.name == "all_gather":
            dist.all_gather_into_tensor(large, small, group=group)
        elif call.name == "reduce_scatter":
            dist.reduce_scatter_tensor(small, large, group=group)
        elif call.name == "all_to_all":
            dist.all_to_all_single(torch.empty_like(large), large, group=group)
        else:
            dist.barrier(group)

    def _back_propagate(self, layers: int) -> None:
        if self._ddp is None:
            width = 16
            parts = [torch.nn.Linear(width, width) for _ in range(layers)]
            self._ddp = DistributedDataParallel(
                torch.nn.Sequential(*parts), bucket_cap_mb=width * width * 5 / 2**20
            )
        self._ddp(torch.ones(1, 16)).sum().backward()
        self._ddp.zero_grad()

    # What goes wrong.

    def _new_fault(self) -> Fault | None:
        """Return what goes wrong in this step here."""
        path = self._folder / f"fault-{self._next_fault}.json"
        if not path.exists():
            return None
        self._next_fault += 1
        fault = Fault(**json.loads(path.read_text()))
        return fault if fault.rank == self._rank else None

    def _begin(self, fault: Fault) -> None:
        draft = self._folder / "began.new"
        draft.write_text(str(time.monotonic_ns()))
        draft.rename(self._folder / f"began-{fault.number}")

    def _hold(self, fault: Fault, calls: int) -> tuple[int, Callable[[], None]]:
        """Return before which call the others are held back, and by what."""
        hold, where = _HOLDS[fault.kind]
        number = int(fault.place * calls) if where is None else where % (calls + 1)
        release = self._folder / f"release-{fault.number}"

        def begin_and_hold() -> None:
            self._begin(fault)
            hold(release)

        return number, begin_and_hold


def _sleep(release: Path) -> None:
    while not release.exists():
        time.sleep(_POLL_S)


def _wait_for_lock(release: Path) -> None:
    """Wait for a lock that another thread keeps."""
    lock = threading.Lock()
    lock.acquire()

    def keep() -> None:
        _sleep(release)
        lock.release()

    threading.Thread(target=keep, daemon=True).start()
    lock.acquire()


def _keep_gil(release: Path) -> None:
    """Wait in a C function that keeps the GIL."""
    pipe = os.open(release.with_suffix(".pipe"), os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
    os.close(pipe)


def _compute_with_gil(release: Path) -> None:
    """Compute in C for hours, with the GIL."""
    assert release
    re.match("(a+)+b", "a" * 64)


def _load_batch(release: Path) -> None:
    """Read from a pipe whose other end delivers nothing for a while."""
    with open(release.with_suffix(".pipe"), "r+b", buffering=0) as pipe:
        pipe.read(1)


def _evaluate(release: Path) -> None:
    """Compute on one rank while the others wait for it."""
    weights = torch.ones(64, 64)
    while not release.exists():
        (weights @ weights).sum().item()
        time.sleep(_POLL_S / 10)


def _save_checkpoint(release: Path) -> None:
    """Write and flush a file, on a disk that takes its time."""
    with open(release.with_suffix(SAVED), "wb") as file:
        while not release.exists():
            file.seek(0)
            file.write(_PAGE)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(_POLL_S / 10)


def _save_to_a_pipe(release: Path) -> None:
    """Write a checkpoint to something that takes no more of it for a while."""
    with open(release.with_suffix(".pipe"), "r+b", buffering=0) as pipe:
        while not release.exists():
            pipe.write(_PAGE)


# What holds the others back, and before which call: None where the fault's place says it, 0 the
# first, -1 after the last.
_HOLDS: dict[str, tuple[Callable[[Path], None], int | None]] = {
    "sleep": (_sleep, None),
    "lock": (_wait_for_lock, None),
    "gil": (_keep_gil, None),
    "gil_computing": (_compute_with_gil, None),
    "loader": (_load_batch, 0),
    "evaluation": (_evaluate, -1),
    "save": (_save_checkpoint, -1),
    "save_blocked": (_save_to_a_pipe, -1),
}


if __name__ == "__main__":
    main()
