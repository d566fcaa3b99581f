"""The logs of daemons: followed from where they were read last, and their findings."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.sources.kernel_log import Kept, fabric_manager_source, system_log_source
from everstep_agent.sources.source import Source
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

_OLD = "[Jul 23 2024 07:53:55] [ERROR] [tid 841] failed to find the GPU handle 1 in the multicast"
_NEW = f"{_OLD} team request setup 2.\n"

_Make = Callable[[Path, Position, Kept, float], Source]


def _look(
    path: Path, position: Position, *writes: str, make: _Make = fabric_manager_source
) -> tuple[list[Judgement], list[Position]]:
    """Look before each write, and after the last."""
    kept: list[Position] = []

    async def scenario() -> list[Judgement]:
        source = make(path, position, Kept(kept.append), 5.0)
        found: list[Judgement] = []
        for text in ("", *writes):
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            said: Sequence[Judgement] = await source.look()
            source.told()
            found += said
        return found

    return asyncio.run(scenario()), kept


def test_a_manager_that_refuses_multicast_is_found_though_its_service_is_active(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fabricmanager.log"
    path.write_text(_NEW, encoding="utf-8")
    found, kept = _look(path, Position(), "[Feb 27 2025 14:10:02] [INFO] Connected\n", _NEW)
    (judgement,) = found
    assert judgement.key == FindingKey("fabric/manager", "FabricMulticastFailed")
    assert kept[-1].place == path.stat().st_size
    # The next agent goes on where this one was.
    again, _ = _look(path, kept[-1])
    assert again == []
    missed, _ = _look(path, Position(kept[-1].source, 0))
    assert [one.key for one in missed] == [judgement.key]


def test_a_node_without_a_fabric_manager_has_no_fault(tmp_path: Path) -> None:
    async def scenario() -> Sequence[Judgement]:
        source = fabric_manager_source(tmp_path / "none", Position(), Kept(lambda _: None), 5.0)
        return await source.look()

    assert list(asyncio.run(scenario())) == []


_SMARTD = "Nov  3 12:00:01 node7 smartd[812]: Device: /dev/sda [SAT], "


def test_a_system_log_tells_what_smartd_and_gpfs_say_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "syslog"
    path.write_text(f"{_SMARTD}FAILED SMART self-check. BACK UP DATA NOW!\n", encoding="utf-8")
    writes = (
        f"{_SMARTD}8 Currently unreadable (pending) sectors\n",
        "Nov  3 12:00:02 node7 bob[9]: Device: /dev/sdz, FAILED SMART self-check.\n",
        "Nov  3 12:00:02 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off\n",
        "Nov  3 12:00:03 node7 mmfs: Error=MMFS_DISKFAIL, ID=0x9C6C05FA, Tag=1: Disk failure.\n",
        "2024-03-02_10:11:12.090-0400: [X] Recovery Log I/O failed, unmounting file system fs1\n",
    )
    found, kept = _look(path, Position(), *writes, make=system_log_source)
    assert [(one.key.condition, one.key.component) for one in found] == [
        ("DiskSectorsUnreadable", "disk/sda"),
        ("GpfsError", "disk/gpfs"),
        ("GpfsUnmounted", "disk/gpfs"),
    ]
    assert kept[-1].place == path.stat().st_size


def test_a_user_who_writes_as_smartd_of_disks_without_end_opens_no_findings_without_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "syslog"
    path.write_text("", encoding="utf-8")
    lines = (_SMARTD.replace("sda", f"sd{n}") + "FAILED SMART self-check.\n" for n in range(1000))
    found, _ = _look(path, Position(), "".join(lines), make=system_log_source)
    assert len(found) == 257
    assert found[-1].key == FindingKey("disk/others", "DiskSelfCheckFailed")


def test_what_follows_a_users_flood_is_found_in_the_same_look(tmp_path: Path) -> None:
    path = tmp_path / "syslog"
    path.write_text("", encoding="utf-8")
    flood = f"Nov  3 12:00:02 node7 bob[9]: {'x' * 8000}\n" * 1000
    found, kept = _look(
        path, Position(), f"{flood}{_SMARTD}FAILED SMART self-check.\n", make=system_log_source
    )
    assert [one.key.component for one in found] == ["disk/sda"]
    assert kept[-1].place == path.stat().st_size
