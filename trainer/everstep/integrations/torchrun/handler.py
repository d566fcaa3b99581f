"""torchrun's rendezvous, in which nobody elects anything: the controller's plan decides."""

import atexit
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from everstep.integrations.torchrun.exchange import Exchange, JobOverError
from everstep.integrations.torchrun.listener import AgentListener, say
from everstep.integrations.torchrun.settings import TorchrunSettings, settings
from everstep.launch.memcpy_tuning import memcpy_variables
from everstep.launch.rank_environment import JobAccess, job_environment
from everstep_common.trainer_messages import Start

BACKEND = "everstep"
# torchrun's own agents say little to each other; what takes longer is a node that has gone.
_STORE_S = 300
_REACH_S, _REACH_PAUSE_S = 1.0, 0.05


def joined(given: RendezvousParameters) -> RendezvousHandler:
    """Return the rendezvous of this torchrun, joined. Raises ValueError, RendezvousClosedError."""
    asked = settings(given)
    exchange = Exchange()
    listener = AgentListener(asked, exchange)
    try:
        listener.join()
    except JobOverError as error:
        raise RendezvousClosedError(str(error)) from error
    # torchrun does not shut a rendezvous down when a signal ends it.
    atexit.register(exchange.leave, "interrupted by its user")
    return EverstepRendezvous(asked, exchange, listener.listen_for_store)


class EverstepRendezvous(RendezvousHandler):
    """Which node has which ranks, and where they meet, is in the controller's plan."""

    def __init__(
        self, asked: TorchrunSettings, exchange: Exchange, listen: Callable[[], int]
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
            PrefixStore(prefix, store),
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
        access = JobAccess(asked.job, asked.socket, asked.token, asked.restarts_max)
        os.environ.pop("EVERSTEP_JOB_TOKEN", None)
        os.environ.update(memcpy_variables(os.environ))
        os.environ.update(job_environment(access, start))
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        # All nodes have as many ranks, so torchrun needs to ask no other node for their numbers,
        # which would hold it up until the store's timeout where a node has gone meanwhile.
        os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"


def _reachable(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, _REACH_S):
        return True
    return False
