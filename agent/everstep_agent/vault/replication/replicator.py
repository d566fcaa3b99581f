"""Replicator: sends every committed step of the local ranks to the node that is named for it.

Before those of a new generation travels what it began from, where this node has the only copy.
"""

import asyncio
import logging
import random

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


class Replicator:
    """Replicator with one transfer per rank while the target lacks a step."""

    def __init__(self, vault: JobVault, spawn: Spawn, jitter: random.Random) -> None:
        self._vault = vault
        self._spawn = spawn
        self._jitter = jitter
        self._busy: set[int] = set()
        # (step, address) pairs that need no attempt: acknowledged, and given up.
        self._stored: set[tuple[CopyKey, ReplicaTarget]] = set()
        self._given_up: set[tuple[CopyKey, ReplicaTarget]] = set()

    async def run(self) -> None:
        """Look at every change, until cancelled."""
        while True:
            for key in self.due_copies():
                self._busy.add(key.rank)
                self._spawn(self._replicate(key), f"replicate {self._vault.job} {key}")
            await self._vault.change_signal.wait()

    def due_copies(self) -> list[CopyKey]:
        """Return the oldest step of each idle rank that still has to travel."""
        own = {
            manifest.key
            for manifest, _ in self._vault.holdings.manifests()
            if self._is_mine(manifest.key)
        }
        self._stored = {done for done in self._stored if done[0] in own}
        self._given_up = {done for done in self._given_up if done[0] in own}
        first: dict[int, CopyKey] = {}
        # In reverse, so that the oldest key of a rank is the one that stays. The copies that a
        # generation began from are older than its own, and it depends on them until it has some.
        for key in sorted(own, reverse=True):
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
        if (key, target) in self._stored or (key, target) in self._given_up:
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
                        self._stored.add((key, target))
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
            await put_copy(remote, pinned.manifest, pinned.region, vault.context.outgoing)
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
