"""Replicator: sends every committed step of the local ranks to the node that is named for it.

Before those of a new generation travels what it began from, where this node has the only copy.
"""

import asyncio
import logging
import random
from typing import NamedTuple

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyKey, ReplicaTarget
from everstep_agent.vault.transfer.client import MismatchError, put_copy
from everstep_agent.vault.transfer.remote_agent import TransferRefusedError

logger = logging.getLogger(__name__)
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# How often a copy may arrive with another hash before it is given up: memory or network is broken.
_MISMATCHES_MAX = 2
# How often a node may refuse the copy that a generation began from before it is given up: the steps
# of the generation itself wait behind it.
_REFUSALS_MAX = 5
# A copy that is still needed is offered again so long after it was acknowledged, and then after
# twice as long each time: its keeper's agent may have come back without its memory, under the same
# address. What is there is not sent again.
_AGAIN_S, _AGAIN_S_MAX = 5.0, 60.0
# The loop looks no more often than this for what is to be offered again.
_LOOK_S = 1.0


class _Acknowledged(NamedTuple):
    """Until when an acknowledged replica is believed to be there, and for how long it was."""

    until_s: float
    wait_s: float


class Replicator:
    """Replicator with one transfer per rank while the target lacks a step."""

    def __init__(self, vault: JobVault, spawn: Spawn, jitter: random.Random) -> None:
        self._vault = vault
        self._spawn = spawn
        self._jitter = jitter
        self._busy: set[int] = set()
        # (step, address) pairs that need no attempt: acknowledged, and given up.
        self._stored: dict[tuple[CopyKey, ReplicaTarget], _Acknowledged] = {}
        self._given_up: set[tuple[CopyKey, ReplicaTarget]] = set()
        self._begun_from = vault.initial_copies

    async def run(self) -> None:
        """Look at every change, until cancelled."""
        while True:
            for key in self.due_copies():
                self._busy.add(key.rank)
                self._spawn(self._replicate(key), f"replicate {self._vault.job} {key}")
            await self._next_change()

    async def _next_change(self) -> None:
        """Wait for a change, or until something is to be offered again."""
        until_s = min((one.until_s for one in self._stored.values()), default=None)
        left_s = None if until_s is None else max(_LOOK_S, until_s - _now_s())
        try:
            async with asyncio.timeout(left_s):
                await self._vault.change_signal.wait()
        except TimeoutError:
            return

    def due_copies(self) -> list[CopyKey]:
        """Return the oldest step of each idle rank that still has to travel."""
        own = {
            manifest.key
            for manifest, _ in self._vault.holdings.manifests()
            if self._is_mine(manifest.key)
        }
        if self._vault.initial_copies is not self._begun_from:
            # A plan knows of all copies that there are, whatever was acknowledged before it.
            self._begun_from = self._vault.initial_copies
            own_alone = self._begun_from.only_here
            self._stored = {k: one for k, one in self._stored.items() if k[0] not in own_alone}
        self._stored = {done: one for done, one in self._stored.items() if done[0] in own}
        self._given_up = {done for done in self._given_up if done[0] in own}
        first: dict[int, CopyKey] = {}
        # In reverse, so that the oldest key of a rank is the one that stays. The copies that a
        # generation began from are older than its own, and it depends on them until it has some.
        # What is offered again only gives way to what was never acknowledged.
        for key in sorted(own, key=lambda key: (self.is_stored(key), key), reverse=True):
            if self._wanted(key) and key.rank not in self._busy:
                first[key.rank] = key
        return list(first.values())

    def is_stored(self, key: CopyKey) -> bool:
        """Return whether the node that keeps the replicas now has acknowledged this one."""
        target = self._vault.target
        return target is not None and (key, target) in self._stored

    def _is_mine(self, key: CopyKey) -> bool:
        """Return whether it is on this node to give others the copy."""
        vault = self._vault
        if key in vault.initial_copies.only_here:
            return True
        runs = key.generation == vault.fence and key.generation > vault.stopped
        return runs and vault.holdings.has_own(key)

    def _wanted(self, key: CopyKey) -> bool:
        target = self._vault.target
        if target is None or not self._is_mine(key):
            return False
        stored = self._stored.get((key, target))
        believed = stored is not None and _now_s() < stored.until_s
        if believed or (key, target) in self._given_up:
            return False
        return not self._vault.recoverable.frees(key, replica=True)

    async def _replicate(self, key: CopyKey) -> None:
        self._vault.tasks.track_transfer(key.generation)
        mismatches = refusals = attempt = 0
        try:
            while self._wanted(key):
                target = self._vault.target
                assert target is not None
                try:
                    if await self._attempt(key, target):
                        self._acknowledge(key, target)
                    else:
                        self._given_up.add((key, target))
                    return
                except MismatchError as error:
                    mismatches += 1
                    logger.warning("job %s: %s", self._vault.job, error)
                    if mismatches == _MISMATCHES_MAX:
                        self._vault.report_bad_copy(f"{error}, twice")
                        self._given_up.add((key, target))
                        return
                except OSError as error:
                    if self._stored.pop((key, target), None) is not None:
                        # What was acknowledged before holds up nothing newer.
                        self._acknowledge(key, target)
                        return
                    refusals += isinstance(error, TransferRefusedError)
                    self._vault.context.counters.replication_failures += 1
                    what = (self._vault.job, key, target.node, error or "no answer")
                    logger.info("job %s: replica of %s to %s: %s", *what)
                    if refusals == _REFUSALS_MAX and key in self._vault.initial_copies.only_here:
                        self._given_up.add((key, target))
                        return
                await self._pause(key, attempt)
                attempt += 1
        finally:
            self._busy.discard(key.rank)
            self._vault.change_signal.notify()

    def _acknowledge(self, key: CopyKey, target: ReplicaTarget) -> None:
        before = self._stored.get((key, target))
        wait_s = _AGAIN_S if before is None else min(2 * before.wait_s, _AGAIN_S_MAX)
        self._stored[key, target] = _Acknowledged(_now_s() + wait_s, wait_s)

    async def _attempt(self, key: CopyKey, target: ReplicaTarget) -> bool:
        """Send a copy; False: it is not here any more."""
        # The pin lasts until the hash is acknowledged: bytes that are written after sendfile has
        # returned would still be sent.
        vault = self._vault
        pinned = vault.holdings.pin(key)
        if pinned is None:
            return False
        remote = vault.context.remote_agent(
            target.node, target.address, vault.lineage, vault.transfer_key
        )
        try:
            if await put_copy(remote, pinned.manifest, pinned.region, vault.context.outgoing):
                vault.context.counters.replicated += 1
                vault.context.counters.replicated_bytes += pinned.manifest.size_bytes
        except MismatchError:
            if await vault.verifier.verify_again(pinned):
                raise
            return False
        finally:
            pinned.release()
        return True

    async def _pause(self, key: CopyKey, attempt: int) -> None:
        delay_s = _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]
        try:
            async with asyncio.timeout(delay_s * self._jitter.uniform(0.75, 1.25)):
                while self._wanted(key):
                    await self._vault.change_signal.wait()
        except TimeoutError:
            return


def _now_s() -> float:
    return asyncio.get_running_loop().time()
