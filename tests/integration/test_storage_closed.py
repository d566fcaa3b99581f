"""An agent that may open no file of a job's user: the job trains all the same, and is told."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Notice
from integration.storage_world import storage_in
from integration.vault_clients import Client
from integration.vault_killed import killable
from integration.vault_world import TIMEOUT_S, launcher, lived

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have its rights taken")


def _without_rights(folder: Path) -> str:
    """Make what stands for Python: it starts a storage process that can become nobody."""
    script = folder / "python"
    less = "-setuid,-setgid"
    taken = shlex.join(["setpriv", "--bounding-set", less, "--inh-caps", less, sys.executable])
    script.write_text(f'#!/bin/sh\nexec {taken} "$@"\n')
    script.chmod(0o755)
    return str(script)


async def _hear(control: Client, words: str) -> str:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            said = await control.hear()
            if isinstance(said, Notice) and words in said.text:
                return said.text


@needs_root
@lived
async def test_a_job_trains_without_its_storage_and_hears_why(tmp_path: Path) -> None:
    storage = storage_in(tmp_path / "steps")
    async with (
        killable(tmp_path, _without_rights(tmp_path)) as (node, _),
        launcher(node, storage=storage) as control,
    ):
        said = await _hear(control, "The job trains without it")
        assert "may not open files as user" in said
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))


@needs_root
@lived
async def test_where_something_was_stored_it_waits_or_begins_afresh(tmp_path: Path) -> None:
    storage = storage_in(tmp_path / "steps")
    async with killable(tmp_path, _without_rights(tmp_path)) as (node, _):
        async with launcher(node, storage=storage, storage_begun=True) as control:
            await _hear(control, "waiting for storage to say what this job has there")
            assert not node.outlet.bodies("launcher_joined")
        async with launcher(node, storage=storage, storage_begun=True, fresh=True) as control:
            await _hear(control, "The job trains without it")
            await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
