"""Network file systems that hang: each is asked on a thread of its own, and only that one waits."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.machine.network_mounts import NetworkMounts, ask
from everstep_agent.sources.host import HostSettings, disk_sources
from fakes.waits import eventually

_LOCAL = "27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"
_PATIENCE_S = 20.0


def _nfs(number: int, path: str, device: int | None = None) -> str:
    minor = number if device is None else device
    return f"{number} 27 0:{minor} / {path} rw - nfs4 filer:/export{minor} rw,hard\n"


@dataclass
class Filer:
    """A server that answers, hangs or fails, as a test says; it counts who waits for it."""

    hanging: set[str] = field(default_factory=set)
    failing: dict[str, OSError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    waiting: int = 0
    back: threading.Event = field(default_factory=threading.Event)

    def ask(self, path: str) -> None:
        """Stand in for the calls that would block in the kernel."""
        self.asked.append(path)
        if path in self.hanging:
            self.waiting += 1
            assert self.back.wait(120)
            self.waiting -= 1
        if path in self.failing:
            raise self.failing[path]


@pytest.fixture
def filer() -> Iterator[Filer]:
    server = Filer()
    yield server
    server.back.set()


class Node:
    """A node whose table of mounts a test writes."""

    def __init__(self, folder: Path, filer: Filer, deadline_s: float) -> None:
        self._table = folder / "self/mountinfo"
        self._table.parent.mkdir()
        self.mounts = NetworkMounts(folder, deadline_s, filer.ask)

    def mount(self, *lines: str) -> None:
        """Have these mounted, besides a disk."""
        self._table.write_text(_LOCAL + "".join(lines))

    async def look(self) -> dict[str, str]:
        """Return what is wrong with each mount; empty for nothing."""
        return {one.mount: one.hang or one.error for one in await self.mounts.read()}


def test_a_file_system_that_hangs_delays_no_other_and_has_one_waiting_thread(
    tmp_path: Path, filer: Filer
) -> None:
    async def scenario() -> None:
        # What answers must not miss the deadline on a busy machine.
        node = Node(tmp_path, filer, 3.0)
        node.mount(_nfs(40, "/data"), _nfs(41, "/home"))
        assert await node.look() == {"/data": "", "/home": ""}
        filer.hanging.add("/data")
        for _ in range(2):
            told = await node.look()
            assert told["/data"].startswith("no answer for")
            assert told["/home"] == ""
        assert filer.waiting == 1
        assert filer.asked.count("/home") == 3
        filer.hanging.clear()
        filer.back.set()

        async def answers() -> bool:
            return not (await node.look())["/data"]

        await eventually(answers)

    asyncio.run(scenario())


def test_an_error_is_told_in_its_own_words_and_a_refusal_is_an_answer(
    tmp_path: Path, filer: Filer
) -> None:
    filer.failing["/data"] = OSError(116, "Stale file handle")

    async def scenario() -> None:
        node = Node(tmp_path, filer, _PATIENCE_S)
        node.mount(_nfs(40, "/data"))
        assert await node.look() == {"/data": "Stale file handle"}

    asyncio.run(scenario())


def test_the_same_file_system_at_many_places_is_asked_once(tmp_path: Path, filer: Filer) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, filer, _PATIENCE_S)
        node.mount(*(_nfs(40 + at, f"/pods/{at}", device=7) for at in range(50)))
        assert await node.look() == {"/pods/0": ""}

    asyncio.run(scenario())


def test_what_is_unmounted_is_asked_no_more_and_its_thread_ends(
    tmp_path: Path, filer: Filer
) -> None:
    async def scenario() -> None:
        before = threading.active_count()
        node = Node(tmp_path, filer, _PATIENCE_S)
        node.mount(*(_nfs(40 + at, f"/data{at}") for at in range(100)))
        assert len(await node.look()) == 64
        assert node.mounts.left_out == 36
        node.mount()
        assert await node.look() == {}
        await eventually(lambda: threading.active_count() <= before + 1)

    asyncio.run(scenario())


def test_a_hanging_network_file_system_does_not_delay_the_local_disks(
    tmp_path: Path, filer: Filer
) -> None:
    filer.hanging.add("/data")

    async def scenario() -> None:
        node, view = Node(tmp_path, filer, 0.3), NodeView()
        node.mount(_nfs(40, "/data"))
        (tmp_path / "filesystems").write_text("nodev\tnfs4\n\text4\n")
        settings = HostSettings(proc=tmp_path, sysfs=tmp_path, deadline_s=_PATIENCE_S)
        sources = {one.name: one for one in disk_sources(settings, view, mounts=node.mounts)}
        await asyncio.gather(sources["mounts"].look(), sources["disks"].look())
        assert [disk.mount for disk in view.disks or ()] == ["/"]
        assert "no answer" in view.mounts[0].hang

    asyncio.run(scenario())


def test_a_folder_that_this_user_may_not_list_has_answered(tmp_path: Path) -> None:
    ask(str(tmp_path))
    with contextlib.suppress(FileNotFoundError):
        ask("/proc/1/root")
    with pytest.raises(FileNotFoundError):
        ask(str(tmp_path / "gone"))
