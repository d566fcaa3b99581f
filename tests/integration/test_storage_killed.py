"""An agent is ended at any message to its storage process: what is restored is one whole step."""

import signal
from pathlib import Path

import pytest

from integration.storage_blows import Blow, StoredJob, interpreter
from integration.vault_killed import killable
from integration.vault_states import state_of
from integration.vault_world import lived

_MOMENTS = {
    "AssumeUser": ("received", "done", "answered"),
    "ListSteps": ("received", "done", "answered"),
    "WriteCopy": ("received", "at work", "done", "answered"),
    "MoveLatest": ("received", "done", "answered"),
    "DescribeFile": ("received", "done", "answered"),
    "FillCopy": ("received", "at work", "done", "answered"),
}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("request_", _MOMENTS)
@lived
async def test_the_agent_is_ended_at_a_message_to_storage(
    tmp_path: Path, request_: str, number: signal.Signals
) -> None:
    (tmp_path / "steps").mkdir()
    async with killable(tmp_path, interpreter(tmp_path)) as (node, agent):
        job = StoredJob(node, agent, tmp_path)
        await job.live()
        for moment in _MOMENTS[request_]:
            job.arm(Blow(request_, moment, number))
            await job.live()
            while job.spared:  # short work is not always told of
                await job.live()
            assert job.in_storage() == state_of(job.step)
        assert not node.outlet.bad
