"""A real other user, with the job's own token, gets nothing of the job."""

import asyncio
import os
import pwd
import sys
from pathlib import Path

import pytest

from integration.vault_world import TIMEOUT_S, running, settings, training

_STRANGER = Path(__file__).with_name("vault_stranger.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


async def _answer(folder: Path, what: str) -> str:
    stranger = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_STRANGER),
        str(folder),
        str(pwd.getpwnam("nobody").pw_uid),
        what,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    async with asyncio.timeout(TIMEOUT_S):
        out, _ = await stranger.communicate()
    return out.decode().strip()


@needs_root
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("join", "belongs to another user; choose another name with --job"),
        ("attach", "user or token differ; start it with everstep run"),
    ],
)
def test_another_user_is_refused_also_with_the_right_token(
    tmp_path: Path, what: str, sentence: str
) -> None:
    tmp_path.chmod(0o755)

    async def life() -> None:
        async with running(settings(tmp_path)) as node, training(node) as rank:
            said = len(node.outlet.records)
            answer = await _answer(tmp_path, what)
            assert answer.startswith("Refused: ")
            assert sentence in answer
            assert len(node.outlet.records) == said
            # Those whose job it is notice nothing.
            await rank.save(1, b"state after 1")

    asyncio.run(life())
