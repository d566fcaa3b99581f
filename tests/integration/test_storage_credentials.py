"""Credentials of a user's AWS configuration: no program of it runs in the agent's service."""

import os
import resource
import socket
from pathlib import Path

import pytest

from everstep_agent.storage.worker.messages import ListSteps, StepListing, StorageLocation
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageRefusedError
from integration.vault_world import TIMEOUT_S, lived

pytest.importorskip("boto3")

_DIRECT = "[default]\ncredential_process = {program}\n"
# A profile that takes another's credentials to assume a role.
_BEHIND_A_ROLE = (
    "[default]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = other\n"
    "[profile other]\ncredential_process = {program}\n"
)


def _home(folder: Path, config: str) -> Path:
    program, mark = folder / "program", folder / "ran"
    program.write_text(f"#!/bin/sh\nreadlink /proc/$$/fd/0 > {mark}\n")
    program.chmod(0o755)
    (folder / ".aws").mkdir()
    (folder / ".aws/config").write_text(config.format(program=program))
    return mark


def _workers(folder: Path, port: int) -> StorageWorkerPool:
    environment = {
        "HOME": str(folder),
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    user = JobUser(os.getuid(), os.getgid(), tuple(os.getgroups()), environment=environment)
    return StorageWorkerPool("s3://bucket/runs", user, TIMEOUT_S, 1)


@pytest.mark.parametrize("config", [_DIRECT, _BEHIND_A_ROLE])
@lived
async def test_a_credential_process_is_not_run_and_the_other_way_is_named(
    tmp_path: Path, config: str
) -> None:
    mark = _home(tmp_path, config)
    with socket.create_server(("127.0.0.1", 0)) as server:
        workers = _workers(tmp_path, server.getsockname()[1])
        try:
            with pytest.raises(StorageRefusedError, match="aws configure export-credentials"):
                await workers.ask(
                    ListSteps(StorageLocation("s3://bucket/runs", "demo")), StepListing
                )
            assert not mark.exists()
            pid = workers.idle_pid
            assert pid is not None, "the process answers, and lives"
            assert resource.prlimit(pid, resource.RLIMIT_NPROC) == (0, 0)
            # A program that it started all the same would not inherit its connection.
            assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        finally:
            await workers.close()
