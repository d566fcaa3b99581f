"""Bulk listener: accepts connections, and has those served that have said something.

Users of this node who are no agents are told by the owner of their socket, and let go at once. A
connection that says nothing costs a descriptor and no task.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import cast

from everstep_agent.ipc.accept_load_limit import AcceptLoadLimit, wait_readable
from everstep_agent.ipc.socket_owner import (
    Origin,
    SocketAddress,
    SocketOwners,
    is_reset,
    origin_of,
    plain_host,
)
from everstep_agent.quotas.user_quotas import Quota, UserRefusals
from everstep_agent.vault.replication.connection_limits import ConnectionLimits

logger = logging.getLogger(__name__)

# The share of the event loop that connections may take which come to nothing.
_ACCEPT_SHARE = 0.15
# What each takes of it: a number, for on a busy node the clock goes on while others have the
# processor, and peers would wait for what these took.
_ARRIVAL_S = 7e-5
# How long it rests when the process has no descriptor left: the backlog waits, nothing is lost.
_REST_S = 0.2


class Arrival:
    """A connection that has proven nothing yet."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        self.socket = sock
        self.host = host
        # What serves it, once it has said something.
        self.served: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def await_words(self, deadline_s: float, then: Callable[[bool], None]) -> None:
        """Call ``then`` when something has come, or with False when nothing has in time."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.socket.fileno(), then, True)
        self._deadline = loop.call_later(deadline_s, then, False)

    def stop_waiting(self) -> None:
        """Look no more whether something comes."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            asyncio.get_running_loop().remove_reader(self.socket.fileno())

    def drop(self) -> None:
        """End it, and what serves it."""
        self.stop_waiting()
        if self.served is not None:
            self.served.cancel()
        else:
            self.socket.close()


class BulkListener:
    """Listener of the bulk port. ``begin`` serves a connection, or returns None at the end.

    ``first_words_s``: how long a connection may say nothing. ``work_s``: what its first words cost
    of the event loop.
    """

    def __init__(
        self,
        refusals: UserRefusals,
        first_words_s: float,
        work_s: float,
        begin: Callable[[Arrival], "asyncio.Task[None] | None"],
    ) -> None:
        self.limits: ConnectionLimits[Arrival] = ConnectionLimits()
        self.load_limit = AcceptLoadLimit(_ACCEPT_SHARE)
        self._refusals = refusals
        self._first_words_s = first_words_s
        self._work_s = work_s
        self._begin = begin
        self._silent: set[Arrival] = set()
        self._owners: SocketOwners | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        self._owners = _open_owners(listener)
        try:
            await self._accept(listener)
        finally:
            for arrival in list(self._silent):
                self._end_silent(arrival)
            if self._owners is not None:
                self._owners.close()

    def give_up(self, arrival: Arrival, handshake_s: float) -> None:
        """A connection has ended that may have proven nothing, after so long a handshake."""
        if self.limits.release_unproven(arrival):
            self.load_limit.count_work(handshake_s)

    def note_proof(self, arrival: Arrival) -> None:
        """A connection has proven a key, so its host is a peer's."""
        now_s = asyncio.get_running_loop().time()
        self.limits.release_unproven(arrival)
        self.limits.give_back_work(arrival.host, self._work_s, now_s)
        self.limits.note_known(arrival.host, now_s)

    def note_peer(self, host: str) -> None:
        """The controller has named a host as a peer's."""
        self.limits.note_known(host, asyncio.get_running_loop().time())

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self.load_limit.rest_if_due()
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                await wait_readable(listener)
                continue
            except OSError as error:
                logger.warning("bulk listener: %s", error)
                await asyncio.sleep(_REST_S)
                continue
            self._receive(sock, address)
            self.load_limit.count_work(_ARRIVAL_S)

    def _receive(self, sock: socket.socket, address: SocketAddress) -> None:
        origin = self._origin(sock, address)
        if origin in (Origin.OTHER_USER, Origin.GONE):
            self.limits.refused += 1
            sock.close()
            return
        arrival = Arrival(sock, plain_host(address[0]))
        if origin is Origin.AGENT:
            self.limits.note_known(arrival.host, asyncio.get_running_loop().time())
        if (evicted := self.limits.admit_unproven(arrival, arrival.host)) is not None:
            self._silent.discard(evicted)
            evicted.drop()
        if (words := _has_words(sock)) is None:
            self._silent.add(arrival)
            arrival.await_words(self._first_words_s, lambda came: self._hear(arrival, came=came))
        else:
            self._heard(arrival, words=words)

    def _origin(self, sock: socket.socket, address: SocketAddress) -> Origin:
        if is_reset(sock):
            return Origin.GONE
        if self._owners is None:
            return Origin.ELSEWHERE
        try:
            owner = self._owners.find(address, cast("SocketAddress", sock.getsockname()))
        except OSError:  # nothing is known of it, as of all where the kernel tells none
            return Origin.ELSEWHERE
        origin = origin_of(owner, os.geteuid())
        if owner is not None and origin is Origin.OTHER_USER:
            self._refusals.count(Quota.BULK_PORT, owner.uid)
        return origin

    def _hear(self, arrival: Arrival, *, came: bool) -> None:
        """Something has come, the end of the connection perhaps, or nothing in time."""
        arrival.stop_waiting()
        self._silent.discard(arrival)
        self._heard(arrival, words=came and bool(_has_words(arrival.socket)))

    def _heard(self, arrival: Arrival, *, words: bool) -> None:
        """Serve a connection that has said something; end one that has not."""
        now_s = asyncio.get_running_loop().time()
        if not words:
            self._end_silent(arrival)
        elif not self.limits.begin_work(arrival.host, self._work_s, now_s):
            self.limits.refused += 1
            self._end_silent(arrival)
        else:
            arrival.served = self._begin(arrival)
            if arrival.served is None:
                self._end_silent(arrival)

    def _end_silent(self, arrival: Arrival) -> None:
        self._silent.discard(arrival)
        self.limits.release_unproven(arrival)
        arrival.drop()


def _has_words(sock: socket.socket) -> bool | None:
    """Return whether something has come; False: it has ended; None: neither yet."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return None
    except OSError:
        return False


def _open_owners(listener: socket.socket) -> SocketOwners | None:
    """Return what tells users of this node apart; None, which is logged, where nothing does."""
    try:
        owners = SocketOwners()
        try:
            if owners.can_find(listener):
                return owners
            raise OSError("the kernel finds no socket")
        except BaseException:
            owners.close()
            raise
    except OSError as error:
        logger.warning(
            "other users of this node are not told apart from agents at the bulk port: %s", error
        )
        return None
