"""Rendezvous handler of torchrun: places and master come from the controller's plan."""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from everstep.integrations.torchrun.exchange import JobOverError, RendezvousExchange
from everstep.integrations.torchrun.listener import AgentListener, say
from everstep.integrations.torchrun.process_restart import Again, Kept
from everstep.integrations.torchrun.settings import TorchrunSettings, settings, torchrun_line
from everstep.launch.inspection.rank_files import RankFiles, no_folder
from everstep.launch.memcpy_tuning import memcpy_variables
from everstep.launch.rank_environment import JobAccess, job_environment
from everstep_common.launcher_messages import Start

BACKEND = "everstep"
# torchrun's own agents say little to each other; what takes longer is a node that has gone.
_STORE_S = 300
_REACH_S, _REACH_PAUSE_S = 1.0, 0.05
# In the keys of the barrier at which torchrun waits for its like when its ranks have ended well.
_EXIT_BARRIER = "terminal_state"


def joined(given: RendezvousParameters) -> RendezvousHandler:
    """Return the rendezvous of this torchrun, joined. Raises ValueError, RendezvousClosedError."""
    kept = Kept.of(os.environ)
    told = kept.told_meanwhile()
    asked = settings(given)
    if told is not None:
        if told.succeeded:
            raise SystemExit(0)
        raise RendezvousClosedError(f"job {asked.job} failed: {told.reason}")
    exchange = RendezvousExchange()
    again = Again.of(torchrun_line(), sys.orig_argv, os.environ)
    listener = AgentListener(asked, exchange, again, kept.held_port())
    try:
        listener.join()
    except JobOverError as error:
        raise RendezvousClosedError(str(error)) from error
    # torchrun does not shut a rendezvous down when a signal ends it.
    atexit.register(exchange.leave, "interrupted by its user")
    _make_readable()
    _heed_signals()
    return EverstepRendezvous(asked, exchange, listener.listen_for_store)


def _make_readable() -> None:
    """Have the ranks, which inherit this environment, open what a hung one can be read by."""
    try:
        files = RankFiles.make()
    except OSError as error:
        say(no_folder(error))
        return
    os.environ.update(files.environment(os.environ))
    atexit.register(files.remove)


class EverstepRendezvous(RendezvousHandler):
    """Rendezvous handler: ranks of each node and the master come from the controller's plan."""

    def __init__(
        self, asked: TorchrunSettings, exchange: RendezvousExchange, listen: Callable[[], int]
    ) -> None:
        self._asked = asked
        self._exchange = exchange
        self._listen = listen
        self._closed = False

    def get_backend(self) -> str:
        """See RendezvousHandler."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Each generation's store is a new one, at an address of its own: the ranks may use it."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the next generation. Raises RendezvousClosedError; SystemExit when all is done."""
        try:
            start, store = self._generation()
        except JobOverError as error:
            self._closed = True
            if error.succeeded:  # a spare's job: torchrun knows no other way to end without error
                say(str(error))
                raise SystemExit(0) from error
            raise RendezvousClosedError(str(error)) from error
        self._prepare_environment(start)
        prefix = f"everstep/{self._asked.job}/{start.generation}"
        return RendezvousInfo(
            AgentStore(prefix, store),
            start.node_rank,
            start.node_count,
            RendezvousStoreInfo(start.master_address, start.master_port),
        )

    def is_closed(self) -> bool:
        """See RendezvousHandler."""
        return self._closed

    def set_closed(self) -> None:
        """See RendezvousHandler."""
        self._closed = True

    def num_nodes_waiting(self) -> int:
        """Return 1 when this generation is over: torchrun then ends its ranks and comes back."""
        return int(self._exchange.restart_wanted())

    def get_run_id(self) -> str:
        """See RendezvousHandler."""
        return self._asked.job

    def shutdown(self) -> bool:
        """Bring the membership to the end that torchrun has come to."""
        error = sys.exc_info()[1]
        self._closed = True
        if error is None:
            try:
                self._exchange.succeed()
            except JobOverError as over:
                raise RendezvousClosedError(str(over)) from over
        elif isinstance(error, ChildFailedError):
            count = self._asked.restarts_max
            say(self._exchange.give_up(f"torchrun gives a node up after {count} restarts"))
        else:
            self._exchange.leave(f"torchrun ended: {type(error).__name__}")
        return True

    def _generation(self) -> tuple[Start, Store]:
        while True:
            start = self._exchange.next_start()
            if start.processes != self._asked.processes:
                raise JobOverError(
                    f"the plan has {start.processes} ranks for this node, torchrun would start"
                    f" {self._asked.processes}; use one --nproc-per-node everywhere",
                    succeeded=False,
                )
            if (store := self._store(start)) is not None:
                return start, store

    def _store(self, start: Start) -> Store | None:
        """Return the generation's new store, once its host has made it; None when it is over."""
        place, timeout = (start.master_address, start.master_port), timedelta(seconds=_STORE_S)
        if start.node_rank == 0:
            listener = self._listen()
            return TCPStore(
                *place,
                is_master=True,
                timeout=timeout,
                wait_for_workers=False,
                master_listen_fd=listener,
            )
        while not _reachable(place):
            if self._exchange.restart_wanted(_REACH_PAUSE_S):
                return None
        return TCPStore(*place, is_master=False, timeout=timeout, wait_for_workers=False)

    def _prepare_environment(self, start: Start) -> None:
        """Let the ranks find what the SDK needs: torchrun hands its own environment on."""
        asked = self._asked
        wanted = asked.nodes_max * asked.processes
        access = JobAccess(
            asked.job,
            asked.socket,
            asked.token,
            asked.restarts_max,
            wanted,
            persist=asked.keep.persist_folder,
        )
        os.environ.pop("EVERSTEP_JOB_TOKEN", None)
        os.environ.update(memcpy_variables(os.environ))
        os.environ.update(job_environment(access, start))
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        # All nodes have as many ranks, so torchrun needs to ask no other node for their numbers,
        # which would hold it up until the store's timeout where a node has gone meanwhile.
        os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"


class AgentStore(PrefixStore):
    """Store through which the torchruns of a generation talk to each other.

    The end of the job is what a torchrun waits for that is done (`EverstepRendezvous.shutdown`); at
    its own barrier it would wait five minutes for ranks that have failed meanwhile.
    """

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """See Store."""
        if not any(_EXIT_BARRIER in key for key in keys):
            super().wait(keys, *([] if timeout is None else [timeout]))


def _heed_signals() -> None:
    """Have a signal end torchrun as it does once it has started ranks: with a word to the job."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> None:
    name = signal.Signals(number)
    raise SignalException(f"process {os.getpid()} got {name.name}", sigval=name)


def _reachable(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, _REACH_S):
        return True
    return False
