"""Frames of launchers and training processes on the agent's Unix socket, to the job they change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.launcher_messages import FROM_LAUNCHER, Join
from everstep_common.rank_messages import FROM_TRAINER, Attach
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from fuzz.choices import Choices, Maker, option
from fuzz.format import Format, Handler
from fuzz.node_world import JOB, JOB_ID, TOKEN, Node, say_all, serving, training
from fuzz.shapes import Known, frames_of, messages_of

KNOWN: Known = {
    "protocol": option(TRAINER_PROTOCOL),
    "version": option(VERSION),
    "job": option(JOB, JOB, "other"),
    "job_id": option("", JOB_ID),
    "token": option(TOKEN),
    "generation": option(1, 1, 2, 0),
    "rank": option(0, 1, 2, 3),
    "step": option(*range(12)),
    "slot": option(0, 1, 2, 3),
    "nodes_min": option(1),
    "nodes_max": option(1, 2),
    "processes_per_node": option(1, 4),
    "snapshot_bytes": option(0, 4096),
    "size_bytes": option(0, 1, 4096, 65536),
    "offset_bytes": option(0, 0, 1, 4096),
    "epoch": option(*tuple((1 << 32) + number for number in range(4))),
    "pid": option(2**22 - 1),
}
TESTED = (
    "everstep_common.frames",
    "everstep_common.long_frames",
    "everstep_common.json_readers",
    "everstep_common.launcher_messages",
    "everstep_common.rank_messages",
    "everstep_agent.ipc.connection",
    "everstep_agent.ipc.guarded_socket",
    "everstep_agent.jobs.sessions",
)
# A storage folder that anybody may write to, and that is not there.
_STORAGE = option("/nonexistent/fuzz")


def _said(first: type, kinds: tuple[type, ...]) -> Maker[tuple[bytes, ...]]:
    """Return what makes the words of some connections: who is there, then anything."""
    known = {**KNOWN, "path": _STORAGE}
    greet, go_on = frames_of(messages_of((first,), known)), frames_of(messages_of(kinds, known))

    def words(choices: Choices) -> bytes:
        if choices.rarely(16):
            return choices.bytes(64)
        greeting = b"" if choices.rarely(8) else greet(choices)
        return greeting + b"".join(go_on(choices) for _ in range(choices.below(7)))

    return lambda choices: tuple(words(choices) for _ in range(2 if choices.rarely(6) else 1))


@asynccontextmanager
async def _launched(folder: Path) -> AsyncIterator[Handler]:
    async with serving(folder) as node:
        yield _handler(node)


@asynccontextmanager
async def _trained(folder: Path) -> AsyncIterator[Handler]:
    async with training(folder) as node:
        yield _handler(node)


def _handler(node: Node) -> Handler:
    async def handle(case: tuple[bytes, ...]) -> None:
        await say_all(str(node.path), case)

    return handle


LAUNCHER = Format(_said(Join, FROM_LAUNCHER), _launched, (*TESTED, "everstep_agent.jobs.job"), 300)
TRAINER = Format(_said(Attach, FROM_TRAINER), _trained, (*TESTED, "everstep_agent.vault"), 500)
