"""A bucket on a node without boto3: one sentence, with the command that installs it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from everstep_agent.storage.worker import main
from everstep_agent.storage.worker.messages import FROM_WORKER, AssumeUser, RequestFailed
from everstep_common.extras import install_line
from everstep_common.frames import Channel, encode
from integration.vault_clients import TIMEOUT_S
from integration.vault_killed import environ

# The storage process of an agent, in an environment in which boto3 cannot be imported.
_WITHOUT_BOTO = """
import runpy, sys
sys.modules["boto3"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_the_sentence_names_what_is_missing_and_how_to_install_it() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", _WITHOUT_BOTO, str(Path(main.__file__))]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), env=environ())
    channel = Channel(ours, FROM_WORKER)
    try:
        me = AssumeUser(uid=os.getuid(), gid=os.getgid(), environment={}, bucket=True)
        lifeline, kept = os.pipe()
        socket.send_fds(ours, [encode(me)], [lifeline])
        os.close(lifeline)
        answer, _ = channel.receive(TIMEOUT_S)
        os.close(kept)
    finally:
        channel.close()
        assert process.wait(TIMEOUT_S) == 0
    sentence = f"storage in a bucket needs boto3 beside the agent: {install_line('s3')}"
    assert answer == RequestFailed(sentence)
