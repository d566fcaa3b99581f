"""The holder: keeps descriptors, restarts its command, and takes it along when it ends."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from everstep_agent.commands.hold import HeldDescriptors
from fakes.inherited_signals import ignored, ignoring
from fakes.passed_descriptors import sealed_memory, wrong_descriptors
from fakes.readable import becomes_readable

_TIMEOUT_S = 20.0
_HOLD = "import sys; from everstep_agent.commands.hold import main; sys.exit(main(sys.argv[1:]))"
# Prints its pid, what it was handed, and stores one descriptor more; then waits to be killed.
_COMMAND = """
import fcntl, os, signal, sys
from everstep_common.systemd import notify, remove_fd, store_fd, stored_fds
kept = stored_fds()
texts = {name: os.pread(fd, 9, 0).decode() for name, fd in kept.items()}
fd = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.write(fd, f"memory {len(kept)}".encode())
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
if len(kept) < 2:
    assert store_fd(f"vault-{len(kept)}", fd)
else:
    assert remove_fd("vault-0")
print(os.getpid(), "WATCHDOG_USEC" in os.environ, sorted(texts.items()), flush=True)
signal.pause()
"""


@asynccontextmanager
async def _hold(
    *command: str, options: tuple[str, ...] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    environ = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": os.environ["PATH"],
        "WATCHDOG_USEC": "1000",
        "LISTEN_FDS": "7",
    }
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HOLD, *options, "--", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        yield holder
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.communicate()


async def _line(holder: asyncio.subprocess.Process) -> tuple[int, str]:
    assert holder.stdout is not None
    async with asyncio.timeout(_TIMEOUT_S):
        pid, _, rest = (await holder.stdout.readline()).decode().strip().partition(" ")
    return int(pid), rest


def _wait_dead(pidfd: int) -> None:
    ready = becomes_readable(pidfd, _TIMEOUT_S)
    os.close(pidfd)
    assert ready


def test_descriptors_are_there_again_after_every_restart() -> None:
    async def life() -> None:
        async with _hold(sys.executable, "-c", _COMMAND) as holder:
            expected = [
                "False []",
                "False [('vault-0', 'memory 0')]",
                "False [('vault-0', 'memory 0'), ('vault-1', 'memory 1')]",
                "False [('vault-1', 'memory 1')]",
            ]
            for seen in expected:
                pid, text = await _line(holder)
                assert text == seen
                os.kill(pid, signal.SIGKILL)

    asyncio.run(life())


def test_sigterm_is_passed_on_and_ends_the_holder() -> None:
    async def life() -> None:
        async with _hold(sys.executable, "-c", _COMMAND) as holder:
            pid, _ = await _line(holder)
            pidfd = os.pidfd_open(pid)
            holder.terminate()
            async with asyncio.timeout(_TIMEOUT_S):
                assert await holder.wait() == 128 + signal.SIGTERM
            _wait_dead(pidfd)

    asyncio.run(life())


def test_a_holder_under_nohup_outlives_its_terminal() -> None:
    async def life() -> None:
        async with AsyncExitStack() as stack:
            with ignoring(signal.SIGHUP):
                started = _hold(sys.executable, "-c", _COMMAND)
                holder = await stack.enter_async_context(started)
            pid, _ = await _line(holder)
            assert ignored(holder.pid) == ignored(pid) == {signal.SIGHUP}
            holder.terminate()
            async with asyncio.timeout(_TIMEOUT_S):
                assert await holder.wait() == 128 + signal.SIGTERM

    asyncio.run(life())


def test_the_command_dies_with_a_killed_holder() -> None:
    async def life() -> None:
        async with _hold(sys.executable, "-c", _COMMAND) as holder:
            pid, _ = await _line(holder)
            pidfd = os.pidfd_open(pid)
            holder.kill()
            _wait_dead(pidfd)

    asyncio.run(life())


def test_the_holder_dies_with_its_parent_when_told_to() -> None:
    async def life() -> None:
        # A parent in between, that can be killed.
        parent = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        inner = (sys.executable, "-c", _HOLD, "--die-with-parent", "--", sys.executable, "-c")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", parent, *inner, _COMMAND),
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        )
        pid, _ = await _line(process)
        pidfd = os.pidfd_open(pid)
        process.kill()
        await process.communicate()
        _wait_dead(pidfd)

    asyncio.run(life())


def test_a_command_that_does_not_exist_is_named() -> None:
    async def life() -> None:
        async with _hold("/no/such/agent") as holder:
            assert holder.stderr is not None
            async with asyncio.timeout(_TIMEOUT_S):
                assert b"/no/such/agent: No such file" in await holder.stderr.readline()

    asyncio.run(life())


def test_the_store_closes_what_it_is_not_asked_to_keep() -> None:
    store = HeldDescriptors()
    kept, other = sealed_memory(8), sealed_memory(8)
    store.apply_notification(b"FDSTORE=1\nFDNAME=a", [kept])
    store.apply_notification(b"READY=1", [other])
    assert (store.names(), store.fds()) == (["a"], [kept])
    store.apply_notification(b"FDSTOREREMOVE=1\nFDNAME=a", [])
    assert store.names() == []
    for fd in (kept, other):
        assert not os.path.exists(f"/proc/self/fd/{fd}")


def test_the_store_keeps_sealed_memory_only(capsys: pytest.CaptureFixture[str]) -> None:
    store = HeldDescriptors()
    with wrong_descriptors() as wrong:
        for fd in wrong.values():
            store.apply_notification(b"FDSTORE=1\nFDNAME=a", [os.dup(fd)])
    assert store.names() == []
    told = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in told] == [f"hold: 'a' is not kept: {it}" for it in wrong]


def _socket_names(pid: int) -> list[str]:
    """Return the paths of a process's Unix sockets."""
    own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    listed = [line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()]
    return [line[7] for line in listed if len(line) > 7 and f"socket:[{line[6]}]" in own]


def test_nobody_but_the_command_finds_the_holder() -> None:
    async def life() -> None:
        command = "import os, signal; print(os.getpid(), os.environ['NOTIFY_SOCKET'], flush=True)"
        async with _hold(sys.executable, "-c", f"{command}; signal.pause()") as holder:
            _, address = await _line(holder)
            assert re.fullmatch(r"/proc/self/fd/\d+", address)
            # It has the name that was removed, and nobody is found behind that.
            assert [Path(name).parent.exists() for name in _socket_names(holder.pid)] == [False]

    asyncio.run(life())
