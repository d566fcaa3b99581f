"""A storage worker to which something else than sealed memory is passed."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker import main
from everstep_agent.storage.worker.messages import (
    FROM_WORKER,
    AssumeUser,
    FillCopy,
    RequestFailed,
    StorageLocation,
    UserAssumed,
)
from everstep_common.frames import Channel, encode
from fakes.passed_descriptors import wrong_descriptors
from integration.vault_clients import TIMEOUT_S
from integration.vault_killed import environ


@pytest.fixture
def agent_end() -> Iterator[socket.socket]:
    """Yield the agent's end of the connection to a worker that serves this user."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, str(Path(main.__file__))]
        worker = subprocess.Popen(command, stdin=theirs.fileno(), env=environ())
    me = AssumeUser(uid=os.getuid(), gid=os.getgid(), environment={}, bucket=False)
    lifeline, kept = os.pipe()
    with ours:
        socket.send_fds(ours, [encode(me)], [lifeline])
        os.close(lifeline)
        yield ours
    assert worker.wait(TIMEOUT_S) == 0
    os.close(kept)


def test_the_worker_says_what_it_got_and_what_it_expected(
    agent_end: socket.socket, tmp_path: Path
) -> None:
    request = FillCopy(StorageLocation(str(tmp_path), "train"), StepKey(1, 1), 0, b"")
    with closing(Channel(agent_end, FROM_WORKER)) as channel, wrong_descriptors() as wrong:
        assert channel.receive(TIMEOUT_S)[0] == UserAssumed()
        for called, fd in wrong.items():
            socket.send_fds(agent_end, [encode(request)], [fd])
            answer, _ = channel.receive(TIMEOUT_S)
            assert isinstance(answer, RequestFailed)
            assert answer.reason.startswith(f"the memory of the copy: {called}; expected memory")
        agent_end.sendall(encode(request))
        none = RequestFailed("0 descriptors came with a request that has one")
        assert channel.receive(TIMEOUT_S)[0] == none
