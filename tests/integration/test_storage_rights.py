"""The storage process has the rights of the job's user and no others, and follows no trap."""

import asyncio
import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everstep_agent.ipc.processes import alive, identify
from everstep_agent.storage.worker.messages import (
    CopyFilled,
    CopyWritten,
    FillCopy,
    ListSteps,
    StepListing,
    StorageLocation,
)
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageError, StorageRefusedError
from everstep_agent.vault.memory.region import Region, allocate_region
from everstep_agent.vault.snapshots.hashing import hash_region
from fakes.waits import wait_until
from integration.storage_files import content, order
from integration.vault_world import TIMEOUT_S, lived

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
_ME = JobUser(os.getuid(), os.getgid(), tuple(os.getgroups()))


@asynccontextmanager
async def _workers(path: Path, user: JobUser = _ME) -> AsyncIterator[StorageWorkerPool]:
    workers = StorageWorkerPool(str(path), user, TIMEOUT_S, 2)
    try:
        yield workers
    finally:
        await workers.close()


def _memory(step: int) -> Region:
    region = allocate_region(len(content(step)), "everstep-test")
    with region.writable() as view:
        view[: len(content(step))] = content(step)
    return region


async def _write(workers: StorageWorkerPool, path: Path, step: int = 3) -> int:
    region = _memory(step)
    fd = region.open_read_only()
    try:
        return (await workers.ask(order(str(path), 1, step), CopyWritten, [fd])).file_bytes
    finally:
        os.close(fd)
        region.release()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _status(pid: int | None) -> str:
    return Path(f"/proc/{pid}/status").read_text()


@lived
async def test_a_copy_goes_to_a_file_and_back_into_new_memory(tmp_path: Path) -> None:
    async with _workers(tmp_path) as workers:
        assert await _write(workers, tmp_path) > 4096
        assert await _write(workers, tmp_path) == 0  # it is there already
        wanted = order(str(tmp_path), 1, 3)
        region = allocate_region(wanted.size_bytes, "everstep-test")
        request = FillCopy(wanted.location, wanted.key, 0, wanted.root_hash)
        filled = await workers.ask(request, CopyFilled, [region.fd])
        assert filled.description.entries == wanted.entries
        # Nobody has it mapped for writing any more, and the bytes are the copy's.
        assert region.freeze()
        assert hash_region(region, wanted.size_bytes) == wanted.root_hash
        region.release()


@lived
async def test_memory_that_is_not_what_was_verified_becomes_no_file(tmp_path: Path) -> None:
    async with _workers(tmp_path) as workers:
        region = _memory(4)
        fd = region.open_read_only()
        with pytest.raises(StorageRefusedError, match="changed after it was verified"):
            await workers.ask(order(str(tmp_path), 1, 3), CopyWritten, [fd])
        os.close(fd)
        region.release()
        assert _files(tmp_path) == []


@lived
async def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with _workers(tmp_path) as workers:
        await _write(workers, tmp_path, 1)
        idle = workers.idle_pid
        assert idle is not None
        os.kill(idle, signal.SIGKILL)
        with contextlib.suppress(StorageError):  # unless it is known to be dead already
            await _write(workers, tmp_path, 2)
        await _write(workers, tmp_path, 3)
        assert workers.idle_pid not in (None, idle)


@needs_root
@lived
async def test_another_users_folder_is_closed_to_the_job(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    folder = tmp_path / "root"
    folder.mkdir(mode=0o755)
    _open_to_all(tmp_path)
    async with _workers(folder, JobUser(nobody.pw_uid, nobody.pw_gid)) as workers:
        with pytest.raises(StorageRefusedError, match="Permission denied"):
            await _write(workers, folder)
    assert list(folder.iterdir()) == []


@needs_root
@lived
async def test_files_belong_to_the_jobs_user_with_its_groups_and_umask(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    folder = tmp_path / "team"
    folder.mkdir()
    os.chown(folder, 0, 54321)
    folder.chmod(0o770)
    _open_to_all(tmp_path)
    user = JobUser(nobody.pw_uid, nobody.pw_gid, (54321,), 0o027)
    async with _workers(folder, user) as workers:
        await _write(workers, folder)
    written = (folder / "demo/gen-1/step-3/rank-0.safetensors").stat()
    assert (written.st_uid, written.st_gid) == (nobody.pw_uid, nobody.pw_gid)
    assert written.st_mode & 0o777 == 0o640


@needs_root
@pytest.mark.parametrize("user", [0, 54323])
@lived
async def test_a_jobs_folder_that_another_user_made_where_everybody_may_is_not_used(
    tmp_path: Path, user: int
) -> None:
    """It could hold a state of theirs, from which the job would go on."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    _open_to_all(tmp_path)
    (scratch / "demo").mkdir()
    (scratch / "demo").chmod(0o777)
    os.chown(scratch / "demo", 54324, 54324)
    async with _workers(scratch, JobUser(user, user)) as workers:
        with pytest.raises(StorageRefusedError, match=r"another user \(uid 54324\)"):
            await _write(workers, scratch)
        with pytest.raises(StorageRefusedError, match=r"another user \(uid 54324\)"):
            await workers.ask(ListSteps(StorageLocation(str(scratch), "demo")), StepListing)
    assert list((scratch / "demo").iterdir()) == []


@needs_root
@lived
async def test_a_folder_that_the_user_made_there_is_used(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    _open_to_all(tmp_path)
    async with _workers(scratch, JobUser(54323, 54323)) as workers:
        assert await _write(workers, scratch)
    assert (scratch / "demo").stat().st_uid == 54323


@needs_root
@lived
async def test_nothing_of_a_job_is_readable_to_another_user(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    _open_to_all(tmp_path)
    async with _workers(scratch, JobUser(54323, 54323)) as workers:
        await _write(workers, scratch)
        idle = workers.idle_pid
        for secret in ("environ", "maps", "fd", "cwd", "root"):
            assert _denied(54325, f"/proc/{idle}/{secret}"), secret
            assert _denied(54323, f"/proc/{idle}/{secret}"), f"{secret}, of its own user"
    for path in (scratch / "demo").rglob("*"):
        assert not path.stat().st_mode & 0o077, path


def _denied(uid: int, path: str) -> bool:
    """Return whether a process of this user can neither read nor list nor follow a path."""
    done = subprocess.run(
        ["sh", "-c", f"cat {path} || ls {path}/ || readlink {path}"],
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
    )
    return done.returncode != 0 and not done.stdout


@pytest.mark.parametrize(
    "environment",
    [
        {"a=b": "1"},
        {"": "1"},
        {"LD_PRELOAD": "/tmp/x.so"},
        {"AWS_A": "\0"},
        {"AWS_A": "x" * 99_999},
    ],
)
@lived
async def test_an_environment_that_cannot_be_one_is_refused_in_a_sentence(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    user = JobUser(os.getuid(), os.getgid(), environment=environment)
    async with _workers(tmp_path, user) as workers:
        with pytest.raises(StorageRefusedError, match=r"^environment: "):
            await workers.ask(ListSteps(StorageLocation(str(tmp_path), "demo")), StepListing)


@pytest.mark.parametrize("path", ["relative", "/proc/self/mem", "/dev/zero", "/proc/1/root/x"])
@lived
async def test_a_path_that_is_no_folder_is_refused_in_a_sentence(path: str) -> None:
    async with _workers(Path("/")) as workers:
        with pytest.raises(StorageRefusedError):
            await workers.ask(ListSteps(StorageLocation(path, "demo")), StepListing)
        assert workers.idle_pid is not None, "the process answers, and lives"


@needs_root
@lived
async def test_the_process_of_roots_job_has_no_capabilities_either(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    async with _workers(folder) as workers:
        with pytest.raises(StorageRefusedError, match="Permission denied"):
            await _write(workers, folder)
        idle = workers.idle_pid
        status = _status(idle)
        for kind in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            assert f"{kind}:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status


def _as_nobody(folder: Path, uid: int, *capabilities: str) -> str:
    """Return what an agent says that runs as nobody, with these capabilities."""
    with _of_nobody(folder, uid, *capabilities) as agent:
        said, wrong = agent.communicate()
    assert not wrong, wrong
    return said


def _of_nobody(
    folder: Path, uid: int, *capabilities: str, words: Sequence[str] = ()
) -> "subprocess.Popen[str]":
    """Start an agent that is nobody, and may what is named."""
    # The Python of the tests may lie in a folder that only root may enter.
    granted = ",".join(f"+{name}" for name in ("dac_read_search", *capabilities))
    rights = ["--inh-caps", granted, "--ambient-caps", granted]
    program = Path(__file__).with_name("storage_unprivileged.py")
    nobody = str(pwd.getpwnam("nobody").pw_uid)
    command = ["setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups", *rights]
    return subprocess.Popen(
        [*command, sys.executable, str(program), str(folder), str(uid), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the environment, because the rights are gone before Python looks at its own prefix.
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
    )


@needs_root
def test_an_agent_without_root_needs_two_capabilities_and_hands_on_none(tmp_path: Path) -> None:
    uid = 54322
    folder = tmp_path / "own"
    folder.mkdir()
    os.chown(folder, uid, uid)
    _open_to_all(tmp_path)
    said = _as_nobody(folder, uid)
    assert "run it as root, or give it CAP_SETUID and CAP_SETGID" in said
    said = _as_nobody(folder, uid, "setuid", "setgid")
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in said
    assert "CapPrm:\t0000000000000000 CapEff:\t0000000000000000" in said
    assert (folder / "demo/gen-1/step-3/rank-0.json").stat().st_uid == uid


@needs_root
def test_an_agent_without_root_ends_a_process_of_another_user_that_hangs(tmp_path: Path) -> None:
    uid = 54322
    os.chown(tmp_path, uid, uid)
    _open_to_all(tmp_path)
    with _of_nobody(tmp_path, uid, "setuid", "setgid", words=["close"]) as agent:
        assert agent.stdout is not None
        worker = identify(int(agent.stdout.readline().split()[0]))
        assert worker is not None
        # It hangs: the end of the connection tells it nothing, and the agent may not signal it.
        os.kill(worker.pid, signal.SIGSTOP)
        _, wrong = agent.communicate("\n")
    assert not wrong, wrong
    assert agent.returncode == 0
    assert not alive(worker)


def test_a_storage_process_dies_with_its_agent_whatever_it_does(tmp_path: Path) -> None:
    program = Path(__file__).with_name("storage_unprivileged.py")
    agent = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path), str(os.getuid()), "wait"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
    )
    assert agent.stdout is not None
    worker = identify(int(agent.stdout.readline().split()[0]))
    assert worker is not None
    # It hangs: the end of the connection would tell it nothing.
    os.kill(worker.pid, signal.SIGSTOP)
    agent.kill()
    agent.communicate()
    wait_until(lambda: not alive(worker))


@needs_root
def test_so_does_one_of_a_user_whom_the_agent_may_not_signal(tmp_path: Path) -> None:
    uid = 54322
    os.chown(tmp_path, uid, uid)
    _open_to_all(tmp_path)
    with _of_nobody(tmp_path, uid, "setuid", "setgid", words=["wait"]) as agent:
        assert agent.stdout is not None
        worker = identify(int(agent.stdout.readline().split()[0]))
        assert worker is not None
        os.kill(worker.pid, signal.SIGSTOP)
        agent.kill()
        agent.communicate()
    wait_until(lambda: not alive(worker))


def _link_job(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "demo").symlink_to(folder.parent / "elsewhere")


def _link_step(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "demo/gen-1").mkdir(parents=True)
    (folder / "demo/gen-1/step-3").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("trap", [_link_job, _link_step])
@lived
async def test_a_link_below_the_folder_is_not_followed(
    tmp_path: Path, trap: Callable[[Path], None]
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    trap(folder)
    async with _workers(folder) as workers:
        with pytest.raises(StorageRefusedError, match="is not a folder"):
            await _write(workers, folder)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _away(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("trap", [_fifo, _socket, _deep, _huge, _away])
@pytest.mark.parametrize("name", ["latest", "gen-1/step-3/manifest.json"])
@lived
async def test_a_trap_where_a_record_should_be_holds_nobody_up(
    tmp_path: Path, trap: Callable[[Path], None], name: str
) -> None:
    (tmp_path / "demo/gen-1/step-3").mkdir(parents=True)
    trap(tmp_path / "demo" / name)
    async with _workers(tmp_path) as workers:
        try:
            seen = await workers.ask(ListSteps(StorageLocation(str(tmp_path), "demo")), StepListing)
        except StorageRefusedError:
            return
        assert (seen.latest, seen.steps) == (None, ())


@pytest.mark.parametrize("job", ["..", "a/b", "", ".hidden", "../../etc"])
@lived
async def test_a_job_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, job: str) -> None:
    async with _workers(tmp_path) as workers:
        with pytest.raises(StorageRefusedError, match="cannot name a folder"):
            await workers.ask(ListSteps(StorageLocation(str(tmp_path), job)), StepListing)


def _open_to_all(folder: Path) -> None:
    """Let other users pass: pytest keeps its folders to itself."""
    below = Path(tempfile.gettempdir())
    for path in [folder, *folder.parents]:
        if path.is_relative_to(below) and path != below:
            path.chmod(path.stat().st_mode | 0o055)


@lived
async def test_the_event_loop_goes_on_while_storage_does_not_answer(tmp_path: Path) -> None:
    async with _workers(tmp_path) as workers:
        await _write(workers, tmp_path, 1)
        idle = workers.idle_pid
        assert idle is not None
        os.kill(idle, signal.SIGSTOP)  # as good as a hung file system, but it can be killed
        workers.stall_s = 0.3
        with pytest.raises(StorageError, match=r"nothing moved for 0.3 s: process \d+ is in state"):
            await _write(workers, tmp_path, 2)
        workers.stall_s = TIMEOUT_S
        assert workers.hung == 0
        await _write(workers, tmp_path, 2)


@pytest.mark.parametrize("who", [JobUser(-1, 0), JobUser(0, -1), JobUser(-1, -1)])
@lived
async def test_nobody_in_particular_opens_no_file(tmp_path: Path, who: JobUser) -> None:
    # To the kernel, -1 is whoever asks: the agent itself, which may be root.
    async with _workers(tmp_path, who) as workers:
        with pytest.raises(StorageError, match="whose files"):
            await workers.ask(ListSteps(StorageLocation(str(tmp_path), "demo")), StepListing)


@lived
async def test_a_process_that_was_at_work_when_its_place_was_closed_goes_too(
    tmp_path: Path,
) -> None:
    async with _workers(tmp_path) as workers:
        asked = asyncio.create_task(
            workers.ask(ListSteps(StorageLocation(str(tmp_path), "demo")), StepListing)
        )
        await asyncio.sleep(0)
        await workers.close()
        await asked
        assert workers.idle_pid is None
        assert workers.hung == 0
