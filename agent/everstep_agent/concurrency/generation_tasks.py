"""Generation tasks: what runs for each generation of a job, so that a stop can wait for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class GenerationTasks:
    """Copies that are being hashed, and copies that travel."""

    def __init__(self, job: str, spawn: Spawn) -> None:
        self._job = job
        self._spawn = spawn
        self._hashing: dict[asyncio.Task[None], int] = {}
        self._transferring: dict[asyncio.Task[object], int] = {}
        self._ahead: dict[asyncio.Task[None], int] = {}

    def start_hashing(self, work: Coroutine[Any, Any, None], generation: int) -> None:
        """Verify something of a generation in the background."""
        task = self._spawn(work, f"hash {self._job} generation {generation}")
        self._hashing[task] = generation
        task.add_done_callback(lambda done: self._hashing.pop(done, None))

    def track_transfer(self, generation: int) -> None:
        """The current task moves something of a generation."""
        task = asyncio.current_task()
        assert task is not None
        self._transferring[task] = generation
        task.add_done_callback(lambda done: self._transferring.pop(done, None))

    def start_ahead(self, work: Coroutine[Any, Any, None], generation: int) -> None:
        """Do what a generation will need, and leave off what was done ahead for one before it."""
        self.cancel_ahead(generation)
        task = self._spawn(work, f"ahead {self._job} generation {generation}")
        self._ahead[task] = generation
        task.add_done_callback(lambda done: self._ahead.pop(done, None))

    async def wait_finished(self, generation: int, timeout_s: float) -> None:
        """Wait for all of these generations; what still travels after the timeout is given up."""
        self.cancel_ahead(generation)
        moving = [task for task, of in self._transferring.items() if of <= generation]
        if moving:
            _, late = await asyncio.wait(moving, timeout=timeout_s)
            for task in late:
                task.cancel()
        hashing = [task for task, of in self._hashing.items() if of <= generation]
        if hashing:
            await asyncio.wait(hashing)

    def cancel_transfers(self) -> None:
        """Move nothing any more."""
        for task in [*self._transferring, *self._ahead]:
            task.cancel()

    def cancel_ahead(self, generation: int) -> None:
        """Do nothing more ahead for these generations."""
        for task, of in self._ahead.items():
            if of <= generation:
                task.cancel()
